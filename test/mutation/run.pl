# SPDX-License-Identifier: BSD-2-Clause
#
# run.pl - builds the mutants and runs the tests that must notice them; see run-mutations.sh and README.md.
use strict;
use warnings;
use Cwd ();
use File::Temp ();
use File::Basename ();
use Time::HiRes ();
use POSIX ();

my ($here, $top);

BEGIN {
	$here = Cwd::abs_path(File::Basename::dirname(__FILE__));
	$top = Cwd::abs_path("$here/../..");
	push @INC, $here;
}
use Mutants;

# A test that is still running after so many seconds has not noticed anything. What the processes of the test
# wait for a processor does not count, so that other load does not matter.
my $LIMIT = $ENV{LIMIT} || 100;

# A mutant that is known to hang ("hangs") is not waited for so long: so many times what its test takes without it.
my $HANGS_TIMES = 5;
my $HANGS_LEAST = 2;

$| = 1;
my $begun = Time::HiRes::time();
my @phases;
my $processors = qx(nproc 2>/dev/null) || 1;
chomp $processors;
my $jobs = $ENV{JOBS} || $processors + 1;
my @cc = split ' ', $ENV{CC} || 'cc';
my ($work, $keep);
my %running;    # by pid: {done, started, limit, waited}

# ---- commands, some at a time -----------------------------------------------------------------------

# start COMMAND OUTPUT ENVIRONMENT DONE LIMIT: in a process group of its own; then DONE(status, seconds), where
# the status is -1 if it was ended after LIMIT seconds
sub start
{
	my ($command, $output, $environment, $done, $limit) = @_;
	my $pid = fork() // die "fork: $!\n";

	if (!$pid) {
		POSIX::setpgid(0, 0);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>', $output) or POSIX::_exit(99);
		open(STDERR, '>&', \*STDOUT);
		$SIG{INT} = $SIG{TERM} = $SIG{HUP} = $SIG{CHLD} = 'DEFAULT';
		@ENV{ keys %$environment } = values %$environment;
		no warnings;
		exec { $command->[0] } @$command;
		POSIX::_exit(99);
	}
	POSIX::setpgid($pid, $pid);
	$running{$pid} = { done => $done, limit => $limit, started => Time::HiRes::time(), waited => {} };
}

# waited PID: seconds that the threads of its process group have waited for a processor
sub waited
{
	my ($group) = @_;
	my $sum = 0;

	for my $stat (glob('/proc/[0-9]*/stat')) {
		open(my $in, '<', $stat) or next;
		my $line = <$in> // next;
		my ($pid, $of) = $line =~ /^(\d+) \(.*\) \S \d+ (\d+) /s or next;
		next if $of != $group;
		for my $schedstat (glob("/proc/$pid/task/*/schedstat")) {
			open(my $task, '<', $schedstat) or next;
			my (undef, $wait) = split ' ', <$task> // next;
			$running{$group}{waited}{$schedstat} = $wait / 1e9;
		}
	}
	$sum += $_ for values %{ $running{$group}{waited} };
	return $sum;
}

# reap: one command at least has ended, and its DONE has been called
sub reap
{
	local $SIG{CHLD} = sub { };
	for (;;) {
		my $pid = waitpid(-1, POSIX::WNOHANG());
		if ($pid > 0) {
			my $job = delete $running{$pid} or next;
			my $status = $job->{ended} ? -1 : $?;
			kill 'KILL', -$pid;    # what it has left behind
			$job->{done}->($status, Time::HiRes::time() - $job->{started});
			return;
		}
		for my $pid (keys %running) {
			my $job = $running{$pid};
			my $seconds = Time::HiRes::time() - $job->{started};
			next if $job->{ended} || !$job->{limit} || $seconds < $job->{limit};
			next if $seconds - waited($pid) < $job->{limit};
			$job->{ended} = 1;
			kill 'KILL', -$pid;
		}
		select(undef, undef, undef, 0.05);
	}
}

sub stop_all
{
	kill 'KILL', map { -$_ } keys %running;
	exit 1;
}

# all MOST NEXT: NEXT() starts a command, and says whether there was one that could start
sub all
{
	my ($most, $next) = @_;

	for (;;) {
		1 while keys %running < $most && $next->();
		return if !%running;
		reap();
	}
}

# phase NAME: it is over
sub phase
{
	my $now = Time::HiRes::time();

	push @phases, sprintf('%s %.0f s', $_[0], $now - $begun);
	$begun = $now;
}

sub contents
{
	open(my $in, '<', $_[0]) or return '';
	local $/;
	return <$in> // '';
}

# ---- the build --------------------------------------------------------------------------------------

my @flags = ('-std=c11', '-D_GNU_SOURCE=1', '-O0', '-w', '-DSC_FAULT_INJECTION', "-I$top/include");

# compile FILES: [source, object] of each; the messages of those that failed
sub compile
{
	my @left = @_;
	my @failed;

	all($processors, sub {
		my $job = shift @left or return 0;
		my ($source, $object) = @$job;
		start([ @cc, @flags, '-fdiagnostics-color=never', '-include', "$work/mutant.h", "-I$work/src",
			"-I$top/test/unit", '-c', $source, '-o', $object ], "$object.log", {}, sub {
				push @failed, [ @$job, contents("$object.log") ] if $_[0];
		});
		return 1;
	});
	return @failed;
}

# build SOURCES MUTANTS PROGRAMS: all objects and programs; a mutant that does not compile is left out, and gets
# its problem
sub build
{
	my ($sources, $mutants, $programs) = @_;
	my @from = map { [ "$work/src/$_", "$work/o/" . s{/}{_}r . ".o" ] } grep { /\.c$/ } sort keys %{ $sources->{files} };

	mkdir "$work/$_" for qw(src o p run);
	open(my $header, '>', "$work/mutant.h") or die "$work: $!\n";
	print $header "extern int sc_mutant;\n";
	close($header);
	push @from, map { [ "$top/test/unit/$_.c", "$work/p/$_.o" ] } @$programs;
	push @from, [ "$here/filter.c", "$work/filter.o" ];
	push @from, [ "$top/test/pattern.c", "$work/o/pattern.o" ];
	# those that take longest come first
	@from = sort { -s $b->[0] <=> -s $a->[0] } @from
		if (Mutants::write($sources, $mutants, "$work/src"), 1);
	while (my @failed = compile(@from)) {
		my %bad;
		for my $failed (@failed) {
			while ($failed->[2] =~ /^mutant:([^:]+):\d+:(?:\d+:)? (?:fatal )?error: (.*)$/mg) {
				$bad{$1} //= $2;
			}
		}
		# a macro's: where it is used, the compiler shows its text
		my %names = map { ($_->{number} => $_->{name}) } @$mutants;
		for my $failed (%bad ? () : @failed) {
			my ($error) = $failed->[2] =~ / error: (.*)$/m;
			$bad{ $names{$1} } = $error while $failed->[2] =~ /\bsc_mutant == (\d+) \?/g;
		}
		if (!grep { $bad{ $_->{name} } && !$_->{problem} } @$mutants) {
			print map { my @lines = split /^/, $_->[2]; splice(@lines, 20); @lines } @failed;
			print "FAIL the sources with their mutants do not compile\n";
			return 0;
		}
		$_->{problem} = "does not compile: $bad{ $_->{name} }" for grep { $bad{ $_->{name} } } @$mutants;
		Mutants::write($sources, [ grep { !$_->{problem} } @$mutants ], "$work/src");
		@from = map { [ @$_[0, 1] ] } @failed;
	}

	my @objects = glob("$work/o/*.o");
	my @left = @$programs;
	my $well = 1;
	all($processors, sub {
		my $program = shift @left or return 0;
		start([ @cc, '-o', "$work/$program", "$work/p/$program.o", "$work/filter.o", @objects, '-lcmocka',
			'-lpthread', '-Wl,--allow-multiple-definition' ], "$work/p/$program.log", {}, sub {
				return if !$_[0];
				print contents("$work/p/$program.log"), "FAIL $program cannot be linked\n";
				$well = 0;
		});
		return 1;
	});
	return $well;
}

# ---- the tests --------------------------------------------------------------------------------------

# verdict MUTANT STATUS OUTPUT: a line of it
sub verdict
{
	my ($mutant, $status, $output) = @_;
	my ($name, $test) = ($mutant->{name}, "$mutant->{program} $mutant->{pattern}");
	my ($signal, $exit) = ($status & 127, $status >> 8);

	if ($status == -1) {
		return "PASS $name: $test hangs" if $mutant->{hangs};
		return "FAIL $name: $test is still running after $LIMIT s; README.md tells of mutants that hang";
	}
	return "PASS $name: $test ends by its alarm" if $signal == POSIX::SIGALRM();
	return "PASS $name: $test ends by signal $signal" if $signal;
	return "FAIL $name: $test cannot be started" if $exit == 99;
	return "FAIL $name: $test passes" if $exit == 0 || $exit == 77;
	return "PASS $name: $test ends by its watchdog" if $exit == 124;
	my %failed = map { $_ => 1 } $output =~ /^\[  FAILED  \] ([a-z_0-9]+)$/mg;
	return "PASS $name: $mutant->{program}: " . join(' ', sort keys %failed);
}

# run MUTANTS: how many are caught; first their tests without any mutant
sub run
{
	my ($mutants) = @_;
	my (%sound, @waiting);    # by test: seconds, or undef
	my ($caught, $count) = (0, 0);

	for (@$mutants) {
		$_->{test} = "$_->{program} $_->{pattern}";
		push @waiting, $_->{test} if !exists $sound{ $_->{test} };
		$sound{ $_->{test} } = undef;
	}
	my $run = sub {
		my ($test, $number, $limit, $done) = @_;
		my ($program, $pattern) = split ' ', $test;
		my $output = sprintf('%s/run/%d', $work, ++$count);
		start([ "$work/$program" ], $output, { TEST_FILTER => $pattern, SC_MUTANT => $number }, sub {
			$done->(@_, contents($output));
			unlink $output;
		}, $limit);
		return 1;
	};
	all($jobs, sub {
		my $test = shift @waiting // return 0;
		return $run->($test, 0, $LIMIT, sub {
			my ($status, $seconds, $output) = @_;
			if ($status == 0 && $output =~ /^\[  PASSED  \] [1-9]/m && $output !~ /^\[  SKIPPED \] [1-9]/m) {
				$sound{$test} = $seconds;
				return;
			}
			my @lines = split /\n/, $output;
			splice(@lines, 0, -20);
			print "FAIL $test does not pass without any mutant\n", map { "     $_\n" } @lines;
		});
	});

	phase('tests without mutants');
	my @left;
	for my $mutant (@$mutants) {
		if (defined $sound{ $mutant->{test} }) {
			push @left, $mutant;
		} else {
			print "FAIL $mutant->{name}: $mutant->{test} does not pass without it\n";
		}
	}
	# those that take longest come first
	my $seconds = sub { $_[0]{hangs} ? $HANGS_LEAST + $HANGS_TIMES * $sound{ $_[0]{test} } : $sound{ $_[0]{test} } };
	@left = sort { $seconds->($b) <=> $seconds->($a) } @left;
	all($jobs, sub {
		my $mutant = shift @left or return 0;
		return $run->($mutant->{test}, $mutant->{number}, $mutant->{hangs} ? $seconds->($mutant) : $LIMIT, sub {
			my ($status, $took, $output) = @_;
			my $line = verdict($mutant, $status, $output);
			$caught++ if $line =~ /^PASS/;
			$line .= sprintf(' (%.1f s; without it %.1f s)', $took, $sound{ $mutant->{test} }) if $took >= 1;
			print "$line\n";
		});
	});
	return $caught;
}

# ---- what is asked for ------------------------------------------------------------------------------

my ($of, $list, $untouched);
my $file = "$here/mutations";
my @names;
for (@ARGV) {
	if ($_ eq '--of') { $of = 1 }
	elsif ($_ eq '--list') { $list = 1 }
	elsif ($_ eq '--untouched') { $untouched = 1 }
	elsif ($_ eq '--keep') { $keep = 1 }
	elsif (/^--file=(.+)/) { $file = $1 }
	elsif (/^-/) { die "run-mutations.sh: no option $_\n" }
	else { push @names, $_ }
}

my $sources = Mutants::load("$top/src");
my ($mutants, $problems) = Mutants::read_file($file);
my ($number, %programs) = (0);
for my $mutant (@$mutants) {
	$mutant->{number} = ++$number;
	my @wrong = Mutants::find($sources, $mutant);
	$mutant->{problem} = join('; ', @wrong) if @wrong;
	my $program = "test/unit/$mutant->{program}.c";
	my $text = $programs{$program} //= contents("$top/$program");
	next if $mutant->{program} eq '-' || $mutant->{problem};
	if ($text eq '') {
		$mutant->{problem} = "$mutant->{name}: there is no $program";
	} elsif ($mutant->{pattern} =~ /^\w+$/ && $text !~ /\bvoid $mutant->{pattern}\(/) {
		$mutant->{problem} = "$mutant->{name}: $program has no $mutant->{pattern}";
	}
}

if ($untouched) {
	my %touched = map { $_->{in} ? ("$_->{in}{file} $_->{function}" => 1) : () } map { @{ $_->{edits} } } @$mutants;
	print map { "$_\n" } grep { !$touched{$_} }
		sort map { $_->{kind} eq 'function' ? "$_->{file} $_->{name}" : () }
		map { @$_ } values %{ $sources->{functions} };
	exit 0;
}

my @wanted = @$mutants;
if ($of) {
	my %of = map { s{^src/}{}r => 1 } @names;
	# one whose function is not found may be of any file
	@wanted = grep { $_->{problem} || grep { $of{$_} } Mutants::files($_) } @wanted;
} elsif (@names) {
	my %named = map { $_ => 1 } @names;
	@wanted = grep { delete $named{ $_->{name} } } @wanted;
	push @$problems, map { "there is no mutant $_" } sort keys %named;
}
if ($list) {
	print map { join(' ', @$_{qw(name program pattern)}, map { "src/$_" } Mutants::files($_)) . "\n" } @wanted;
	push @$problems, map { $_->{problem} // () } @wanted;
	print STDERR map { "$_\n" } @$problems;
	exit(@$problems ? 1 : 0);
}

$SIG{INT} = $SIG{TERM} = $SIG{HUP} = \&stop_all;
$work = File::Temp::tempdir('shmcma-mutants-XXXXXX', TMPDIR => 1, CLEANUP => !$keep);
print "FAIL $_\n" for @$problems;
print "FAIL $_->{problem}\n" for grep { $_->{problem} } @wanted;

my $caught = 0;
my @fit = grep { !$_->{problem} } @wanted;
if (@fit) {
	my %programs = map { $_->{program} => 1 } @fit;
	if (build($sources, \@fit, [ sort keys %programs ])) {
		phase('build');
		print "FAIL $_->{name}: $_->{problem}\n" for grep { $_->{problem} } @fit;
		$caught = run([ grep { !$_->{problem} } @fit ]);
	}
}
phase('tests with mutants');
print join(', ', @phases), "\n";
if ($keep) {
	print "SC_MUTANT=$_->{number} TEST_FILTER='$_->{pattern}' $work/$_->{program}    # $_->{name}\n" for @fit;
}
printf("%d mutants, %d caught\n", scalar @wanted, $caught);
exit($caught == @wanted && !@$problems ? 0 : 1);
