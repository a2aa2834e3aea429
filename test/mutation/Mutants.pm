# SPDX-License-Identifier: BSD-2-Clause
#
# Mutants.pm - reads the file of mutants, finds the functions that they change, and writes one copy of src/ that
# holds all of them. README.md tells the format.
#
# A function with mutants has in that copy one body for each of them, and its own body last:
#
#	{ if (sc_mutant == 7) { ... } else if (sc_mutant == 9) { ... } else { ... } }
#
# Each body names its labels as its own, and #line names the mutant, so that the compiler's messages do as well.
# A macro whose body is an expression becomes (sc_mutant == 7 ? (...) : (...)).
#
# Nothing here ends the program: each problem is one line in the list that a function returns.
package Mutants;
use strict;
use warnings;

# tokens TEXT: [text, begin, end] of each; comments are none, a line of the preprocessor is one
sub tokens
{
	my ($text) = @_;
	my @tokens;
	my $first = 1;    # of its line

	pos($text) = 0;
	while (pos($text) < length($text)) {
		my $begin = pos($text);

		if ($text =~ /\G\s+/gc) {
			$first = 1 if substr($text, $begin, pos($text) - $begin) =~ /\n/;
			next;
		}
		next if $text =~ m{\G(?:/\*.*?\*/|//[^\n]*|\\\n)}gcs;
		if ($first && $text =~ m{\G#(?:/\*.*?\*/|\\\n|[^\n])*}gcs) {
			my $line = substr($text, $begin, pos($text) - $begin);
			$line =~ s{/\*.*?\*/|\\\n}{ }gs;
			$line =~ s/\s+/ /g;
			push @tokens, [$line, $begin, pos($text)];
			next;
		}
		$first = 0;
		$text =~ m{\G(?:
			[A-Za-z_]\w* | \.?\d(?:[eEpP][+-]|[\w.])* |
			"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' |
			\.\.\. | <<= | >>= | -> | \+\+ | -- | << | >> | [<>=!]= | && | \|\| | [-+*/%&|^]= | \#\# | .)}gcsx;
		my $token = substr($text, $begin, pos($text) - $begin);
		if ($token =~ /^"/ && @tokens && $tokens[-1][0] =~ /^"/) { # one string, however it is split
			substr($tokens[-1][0], -1) = substr($token, 1);
			$tokens[-1][2] = pos($text);
			next;
		}
		push @tokens, [$token, $begin, pos($text)];
	}
	return @tokens;
}

# functions FILE TEXT: {name, kind, file, text, begin, end} of each function, where the text is what its braces
# hold, and of each macro that has a body
sub functions
{
	my ($file, $text) = @_;
	my @found;
	my @tokens;

	for (tokens($text)) {
		if ($_->[0] !~ /^#/) {
			push @tokens, $_;
			next;
		}
		my $line = substr($text, $_->[1], $_->[2] - $_->[1]);
		next if $line !~ /^#\s*define\s+(\w+)(?:\((?:[^()]*)\))?[ \t\\\n]+(?=\S)/;
		push @found,
			{
			name => $1, kind => 'macro', file => $file, begin => $_->[1] + $+[0], end => $_->[2],
			text => substr($line, $+[0])
			};
	}
	for (my $i = 0; $i < @tokens; $i++) {
		next if $tokens[$i][0] ne '{';

		my ($open, $depth, $name) = ($i, 0);
		if ($i && $tokens[$i - 1][0] eq ')') {
			my $k = $i - 1;
			do {
				$depth++ if $tokens[$k][0] eq ')';
				$depth-- if $tokens[$k][0] eq '(';
				$k--;
			} while ($depth && $k > 0);
			$name = $tokens[$k][0];
		}
		do {
			$depth++ if $tokens[$i][0] eq '{';
			$depth-- if $tokens[$i][0] eq '}';
			$i++;
		} while ($depth && $i < @tokens);
		$i--;
		next if !defined $name || $name !~ /^\w+$/;
		my ($begin, $end) = ($tokens[$open][2], $tokens[$i][1]);
		push @found,
			{
			name => $name, kind => 'function', file => $file, begin => $begin, end => $end,
			text => substr($text, $begin, $end - $begin)
			};
	}
	return @found;
}

# load DIRECTORY: the sources there, {files => {name => text}, functions => {name => [...]}}
sub load
{
	my ($directory) = @_;
	my (%files, %functions);

	for my $path (sort glob("$directory/*/*.[ch]")) {
		my ($file) = $path =~ m{([^/]+/[^/]+)\z};
		open(my $in, '<', $path) or die "$path: $!\n";
		local $/;
		$files{$file} = <$in>;
		push @{ $functions{ $_->{name} } }, $_ for functions($file, $files{$file});
	}
	return { files => \%files, functions => \%functions };
}

# read_file PATH: the mutants, in order, and the problems: {name, program, pattern, hangs, what, edits}
sub read_file
{
	my ($path) = @_;
	my (@mutants, @problems, %seen);

	open(my $in, '<', $path) or die "$path: $!\n";
	my $text = do { local $/; <$in> };
	my @blocks = split(/^=== /m, $text);
	shift @blocks;    # what the file says about itself
	for (@blocks) {
		my ($head, @edits) = split(/^--- /m);
		my ($name) = $head =~ /^(\S+)\n/;
		if (!defined $name) {
			push @problems, "a mutant without a name: " . (split /\n/, $head)[0];
			next;
		}
		my $mutant = { name => $name, edits => [] };
		push @mutants, $mutant;
		push @problems, "$name: there are two of that name" if $seen{$name}++;
		my ($program, $pattern) = $head =~ /^test (\S+) (\S+)\n/m;
		push @problems, "$name: no line \"test PROGRAM PATTERN\"" if !defined $pattern;
		@$mutant{qw(program pattern)} = ($program // '-', $pattern // '-');
		$mutant->{hangs} = $head =~ /^hangs\n/m;
		push @problems, "$name: no function is changed" if !@edits;
		for (@edits) {
			my ($function, $old, $new) = /^(\S+)\n(.*?)^\+\+\+\n(.*)\z/ms;
			if (!defined $new) {
				push @problems, "$name: an edit without +++ behind the text that it replaces";
				next;
			}
			push @{ $mutant->{edits} }, { function => $function, old => $old, new => $new };
		}
	}
	return (\@mutants, \@problems);
}

# places FUNCTION WORDS: where in the text of that function these tokens are, [begin, end] of each place
sub places
{
	my ($function, $words) = @_;
	my $tokens = $function->{tokens} //= [ tokens($function->{text}) ];
	my @places;

	for (my $i = 0; $i + @$words <= @$tokens; $i++) {
		my $k = 0;
		$k++ while $k < @$words && $tokens->[$i + $k][0] eq $words->[$k];
		push @places, [ $tokens->[$i][1], $tokens->[$i + $k - 1][2] ] if $k == @$words;
	}
	return @places;
}

# find SOURCES MUTANT: sets {in, at} of each of its edits; the problems
sub find
{
	my ($sources, $mutant) = @_;
	my @problems;

	for my $edit (@{ $mutant->{edits} }) {
		my $name = $edit->{function};
		my $named = $sources->{functions}{$name} // [];
		my @words = map { $_->[0] } tokens($edit->{old});
		my @of = grep { $_->{kind} eq 'function' } @$named;
		@of = @$named if !@of;
		if (!@of) {
			push @problems, "$mutant->{name}: src/ has no function or macro $name";
			next;
		}
		if (!@words) {
			push @problems, "$mutant->{name}: the text to be replaced in $name is empty";
			next;
		}
		my @found;
		for my $function (@of) {
			push @found, [ $function, $_ ] for places($function, \@words);
		}
		if (@found != 1) {
			my %files = map { ("src/$_->{file}" => 1) } @of;
			push @problems, sprintf("%s: %s (%s) has %s: %s", $mutant->{name}, $name,
				join(', ', sort keys %files),
				@found ? scalar(@found) . " times what it should have once" : "no such text", "@words");
			next;
		}
		@$edit{qw(in at)} = @{ $found[0] };
	}
	return @problems;
}

# files MUTANT: those of src/ that it changes
sub files
{
	my %files = map { $_->{in} ? ($_->{in}{file} => 1) : () } @{ $_[0]{edits} };
	return sort keys %files;
}

# changed TEXT EDITS: the text with these edits, which do not overlap
sub changed
{
	my ($text, @edits) = @_;

	for (sort { $b->{at}[0] <=> $a->{at}[0] } @edits) {
		my ($begin, $end) = @{ $_->{at} };
		substr($text, $begin, $end - $begin) = $_->{new};
	}
	return $text;
}

# line TEXT POSITION: its number
sub line
{
	return 1 + (substr($_[0], 0, $_[1]) =~ tr/\n//);
}

# body TEXT: a block of that body, whose labels are its own
sub body
{
	my ($text) = @_;
	my %labels = map { $_ => 1 } $text =~ /\bgoto\s+(\w+)\s*;/g;
	my $declared = %labels ? '__label__ ' . join(', ', sort keys %labels) . ';' : '';

	return ($declared, $text);
}

# write SOURCES MUTANTS DIRECTORY: the sources with those mutants, each of which has a number; the files that
# differ from what is there
sub write
{
	my ($sources, $mutants, $directory) = @_;
	my %edits;    # of each function: of each mutant's number

	for my $mutant (@$mutants) {
		for my $edit (@{ $mutant->{edits} }) {
			my $of = $edits{ $edit->{in} } //= { function => $edit->{in}, by => {} };
			push @{ $of->{by}{ $mutant->{number} } }, $edit;
		}
	}
	my %names = map { ($_->{number} => $_->{name}) } @$mutants;
	my @written;
	for my $file (sort keys %{ $sources->{files} }) {
		my $original = $sources->{files}{$file};
		my $text = $original;
		my @here = grep { $_->{function}{file} eq $file } values %edits;

		for my $of (sort { $b->{function}{begin} <=> $a->{function}{begin} } @here) {
			my $function = $of->{function};
			my @numbers = sort { $a <=> $b } keys %{ $of->{by} };
			my $replaced = '';
			if ($function->{kind} eq 'macro') {
				for (@numbers) {
					my $new = changed($function->{text}, @{ $of->{by}{$_} });
					$new =~ s/(?:\s|\\\n)+/ /g;
					$replaced .= "(sc_mutant == $_ ? ($new) : ";
				}
				$replaced .= "($function->{text})" . ')' x @numbers;
			} else {
				for (@numbers) {
					my ($labels, $new) =
						body(changed($function->{text}, @{ $of->{by}{$_} }));
					$replaced .= "if (sc_mutant == $_) { $labels\n#line 1 \"mutant:$names{$_}\"\n$new\n} else ";
				}
				my ($labels, $new) = body($function->{text});
				$replaced .= sprintf("{ %s\n#line %d \"%s\"\n%s}", $labels,
					line($original, $function->{begin}), $file, $new);
			}
			substr($text, $function->{begin}, $function->{end} - $function->{begin}) = $replaced;
		}
		my $path = "$directory/$file";
		my ($room) = $path =~ m{(.*)/};
		mkdir $room;
		my $old = '';
		if (open(my $in, '<', $path)) {
			local $/;
			$old = <$in> // '';
		}
		next if $old eq $text;
		open(my $out, '>', $path) or die "$path: $!\n";
		print $out $text;
		close($out) or die "$path: $!\n";
		push @written, $file;
	}
	return @written;
}

1;
