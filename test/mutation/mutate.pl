# SPDX-License-Identifier: BSD-2-Clause
#
# mutate.pl FILE NAME SOURCES - apply the mutation of that name in FILE to the copy of src/ in SOURCES.
#
# Prints what is to be known of it: "test PROGRAM PATTERN", and "file NAME" for each file changed. The text to
# be replaced must be there exactly once, or nothing is done (exit 1). With FILE alone: "NAME PROGRAM PATTERN" of
# all.
use strict;
use warnings;

my ($file, $name, $sources) = @ARGV;
local $/;
open(my $in, '<', $file) or die "$file: $!\n";
my @blocks = split(/^=== /m, <$in>);
shift @blocks;    # what the file says about itself

for (@blocks) {
	my ($head, @edits) = split(/^--- /m);
	my ($this) = $head =~ /^(\S+)\n/ or die "$file: a mutation without name\n";
	my ($test) = $head =~ /^test (\S+ \S+)\n/m or die "$file: $this: no test\n";
	if (!defined $name) {
		print "$this $test\n";
		next;
	}
	next if $this ne $name;
	print "test $test\n";
	for (@edits) {
		my ($path, $old, $new) = /^(\S+)\n(.*)^\+\+\+\n(.*?)\n*\z/ms or die "$file: $this: no edit\n";
		$old =~ s/\n\z//;
		open(my $from, '<', "$sources/$path") or die "$path: $!\n";
		my $text = <$from>;
		my $count = () = $text =~ /\Q$old\E/g;
		die "$file: $this: the text is $count times in src/$path\n" if $count != 1;
		$text =~ s/\Q$old\E/$new/;
		open(my $to, '>', "$sources/$path") or die "$path: $!\n";
		print $to $text;
		close($to) or die "$path: $!\n";
		print "file $path\n";
	}
	exit 0;
}
die "$file: no mutation $name\n" if defined $name;
