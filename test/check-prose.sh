#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The comments and strings of the C files and models and the sentences of the documents name their subject: no clause
# begins with "Who ..." or "What ..." as its subject, no process is "he", nothing "is to be had". A question is allowed,
# and so is any word in quotation marks. Sentences span the lines of a comment, of a paragraph, of adjacent strings.
# Each line of the output is file:line and a sentence.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

if ! command -v perl >/dev/null; then
	echo "SKIP: no perl"
	exit 77
fi

files=$(ls src/*/*.[ch] prov/*/*.[ch] util/*.[ch] include/shmcma/*.h models/*.pml test/*.[ch] test/*/*.[ch] \
	README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md test/*.md test/*/*.md man/*.[1-9])

# a word of $files is the name of a file
# shellcheck disable=SC2086
perl -e '
use strict;
use warnings;

# A clause begins a comment, a string, a paragraph or an item of a list, or follows one of these.
my $start = qr/(?:^|(?<=[.!?;])\s+|(?<=[.!?][)\x27"])\s+|\s-\s+)[("]*\K/;
my @patterns = (
	qr/$start(?:who|what|whoever|whatever|whichever|whose|whom|that which|those who|he who)\b/i,
	qr/(?::|\b(?:and|as|at|but|by|for|from|if|of|so|than|that|then|to|when|where|with)) who\b/i,
	qr/\bwhoever\b/i,
	qr/\b(?:he|him|his|himself|whom)\b/i,
	qr/\bto be had\b/i,
	qr/\bthere (?:is|are|was|were) (?:not |yet )?to be\b/i,
);
my $found = 0;

# judge FILE, LINE, TEXT: prints each sentence of TEXT, which begins at LINE, that matches a pattern
sub judge
{
	my ($file, $line, $text) = @_;
	while ($text =~ /\G((?:[^.!?]|[.!?](?![)"\x27]?(?:\s|$)))*(?:[.!?][)"\x27]?|$))(\s*)/gs) {
		my ($sentence, $gap, $first) = ($1, $2, $line);
		$line += ($sentence . $gap) =~ tr/\n//;
		if ($sentence =~ /\S/ && $sentence !~ /\?[)"\x27]?$/) {
			$first++ while $sentence =~ s/^[ \t]*\n//;
			(my $words = $sentence) =~ s/\s+/ /g;
			$words =~ s/^ | $//g;
			(my $bare = $words) =~ s/`[^`]*`|"[^"]*"/`/g;
			if (grep { $bare =~ $_ } @patterns) {
				print "$file:$first: $words\n";
				$found = 1;
			}
		}
		last if pos($text) >= length $text;
	}
}

# paragraphs FILE, LINE, TEXT: judges each paragraph and each item of a list on its own
sub paragraphs
{
	my ($file, $line, $text) = @_;
	for my $paragraph (split /(\n\s*\n\s*|\n(?=\s*(?:[-*]|\d+\.) ))/, $text) {
		judge($file, $line, $paragraph);
		$line += $paragraph =~ tr/\n//;
	}
}

sub c_file
{
	my ($file, $text) = @_;
	my $string = qr/"(?:[^"\\\n]|\\.)*"/;
	my $adjacent = qr/$string(?:\s+(?:PRI\w+\s+)?$string|\s+PRI\w+)*/;
	my $character = qr/\x27(?:[^\x27\\\n]|\\.)+\x27/;
	while ($text =~ m{(/\*.*?\*/)|(//[^\n]*)|($adjacent)|$character}gs) {
		my ($comment, $strings) = (defined $1 ? $1 : $2, $3);
		my $line = 1 + (substr($text, 0, $-[0]) =~ tr/\n//);
		if (defined $comment) {
			$comment =~ s{^/\*+|\*/$|^//}{}g;
			$comment =~ s/^[ \t]*\*//mg;
			paragraphs($file, $line, $comment);
		} elsif (defined $strings) {
			$strings =~ s/"(\s*)(?:PRI\w+)?(\s*)"/$1$2/g;
			$strings =~ s/^"|"$//g;
			judge($file, $line, $strings);
		}
	}
}

sub markdown
{
	my ($file, $text) = @_;
	my $blank = sub { (my $lines = shift) =~ tr/\n//cd; $lines };
	$text =~ s/^(```.*?^```)/$blank->($1)/gems;
	$text =~ s/^ {4}[^\n]*$//gm;
	paragraphs($file, 1, $text);
}

sub manual
{
	my ($file, $text) = @_;
	$text =~ s/^\.\\".*$//gm;
	# a macro of a block ends the paragraph; of others the arguments are text
	$text =~ s/^\.(?:Sh|Ss|Pp|It|Bl|El|Bd|Ed|Dd|Dt|Os|Nd)\b[ \t]*(.*)$/\x01$1\x01/gm;
	$text =~ s/^\.[A-Z][a-z]\b[ \t]*//gm;
	my $line = 1;
	for my $paragraph (split /\x01/, $text) {
		judge($file, $line, $paragraph);
		$line += $paragraph =~ tr/\n//;
	}
}

for my $file (@ARGV) {
	open my $in, "<", $file or die "$file: $!\n";
	my $text = do { local $/; <$in> };
	if ($file =~ /\.(?:[ch]|pml)$/) {
		c_file($file, $text);
	} elsif ($file =~ /\.md$/) {
		markdown($file, $text);
	} else {
		manual($file, $text);
	}
}
exit $found;
' $files
