# A coordinator and its workers as real processes, each worker behind a relay of its own,
# and what can be seen of them: the lines of the trace as they come, the files of the
# state, what passes on the links, who ended and how.
package Cluster;
use strict;
use warnings;
use Fcntl qw(F_SETFD);
use File::Basename qw(dirname);
use IO::Handle;
use IO::Select;
use JSON::PP;
use POSIX qw(:signal_h :sys_wait_h);
use Socket;
use Time::HiRes qw(sleep time);

use constant PATIENCE => 120; # seconds for what must happen

my $here = dirname(__FILE__);

# new(dir, bin, job, workers, starts, lines, clocks): `workers` are emulations; `starts` the
# options of falcon-ps at its first start, the second, and so on; `lines` the rates of the
# processes of shards; `clocks` the library of clocks that leap, or "".  With `groups`,
# schemes, there is a group server for each, whose folder is DIR/group.N, and the workers
# are members of these, in turn, and of another one where theirs is gone.
sub new {
	my ($class, %is) = @_;
	my $c = bless {%is, state => "$is{dir}/state", started => 0, due => [], lines => [],
		shard => [map { {n => 100 + $_, name => "s$_"} } 1 .. 2], syncs => []}, $class;
	my @all = map { {n => $_, emulate => $is{workers}[$_ - 1]} } 1 .. @{$is{workers}};
	my @groups = @{$is{groups} // []};
	$c->{member} = @groups ? \@all : [];
	$c->{worker} = @groups ? [map { {n => $_, group => $groups[$_ - 1]} } 1 .. @groups] : \@all;
	return $c;
}

# ---- processes

# In the child: COMMAND, with what it says at the end of NAME.err.
sub become {
	my ($c, $name, $out, @command) = @_;
	open STDIN, '<', '/dev/null';
	$out ? open STDOUT, '>&', $out : open STDOUT, '>', '/dev/null';
	open STDERR, '>>', "$c->{dir}/$name.err";
	if ($c->{clocks}) {
		# ld.so ends a name that is to be loaded at a space, but not a folder.
		($ENV{LD_LIBRARY_PATH}, $ENV{LD_PRELOAD}) = $c->{clocks} =~ m{(.*)/(.*)};
		$ENV{CHAOS_CLOCK} = "$c->{dir}/$name.clock";
	}
	POSIX::close($_) for grep { $_ != ($c->{ready} // -1) } 3 .. 64;
	exec @command or POSIX::_exit(127);
}

# A fork whose child is to become another program.  Until then it is still a copy of ours,
# but what a signal has us do, ending all the others, is not for it: it is ended by that
# alone.
sub fork_apart {
	my @ends = qw(INT TERM HUP);
	my $before = POSIX::SigSet->new;
	sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGINT, SIGTERM, SIGHUP), $before);
	my $pid = fork;
	@SIG{@ends} = ('DEFAULT') x @ends if defined $pid && $pid == 0;
	sigprocmask(SIG_SETMASK, $before);
	return $pid // die "fork: $!\n";
}

sub spawn {
	my ($c, $name, $out, @command) = @_;
	my $pid = fork_apart();
	become(@_) if $pid == 0;
	return $pid;
}

sub leap {
	my ($c, $name, $wall, $monotonic) = @_;
	return if !$c->{clocks};
	open my $f, '+>>', "$c->{dir}/$name.clock" or die "$name.clock: $!\n";
	binmode $f;
	seek $f, 0, 0;
	my ($was_wall, $was) = unpack 'q2', join('', <$f>) || pack('q2', 0, 0);
	close $f;
	# In place: it is mapped.
	open $f, '+<', "$c->{dir}/$name.clock" or die "$name.clock: $!\n";
	binmode $f;
	syswrite $f, pack 'q2', $was_wall + $wall * 1e9, $was + $monotonic * 1e9;
	close $f;
}

# As if the machine they all are on had been stopped.  Who was stopped looks at the clock
# before it planned to.
sub sleep_all {
	my ($c, $seconds) = @_;
	my @all = (['ps', $c->{ps}], map { ["w$_->{n}", $_->{pid}] } @{$c->{worker}});
	push @all, map { ["m$_->{n}", $_->{pid}] } @{$c->{member}};
	push @all, map { [$_->{name}, $_->{pid}] } @{$c->{shard}};
	@all = grep { $_->[1] } @all;
	kill 'STOP', map { $_->[1] } @all;
	$c->leap($_->[0], 0, $seconds) for @all;
	kill 'CONT', map { $_->[1] } @all;
}

sub said {
	my ($c, $name) = @_;
	open my $f, '<', "$c->{dir}/$name.err" or return '';
	my @lines = grep { !/emulate:/ } <$f>;
	return join '', @lines > 6 ? @lines[-6 .. -1] : @lines;
}

# ---- the coordinator

# Starts it; false: it ended before workers could come.
sub start_ps {
	my ($c) = @_;
	my $options = $c->{starts}[$c->{started}++ % @{$c->{starts}}];
	$c->leap('ps', 0, 0);
	pipe my $r, my $w or die "pipe: $!\n";
	fcntl $w, F_SETFD, 0;
	local $c->{ready} = fileno $w;
	$c->{ps} = $c->spawn('ps', undef, "$c->{bin}/falcon-ps", '-jx', '-K', "$c->{dir}/keys/keyring",
		'-s', $c->{state}, '--ready-fd', fileno $w, @$options, $c->{job});
	close $w;
	my $line = '';
	my $until = time + PATIENCE;
	while ($line !~ /\n/ && time < $until) {
		IO::Select->new($r)->can_read(1) or next;
		sysread $r, $line, 1024, length $line or last;
	}
	if ($line !~ /\n/) {
		kill 'KILL', $c->{ps};
		waitpid $c->{ps}, 0;
		$c->{ps} = 0;
		return 0;
	}
	chomp($c->{address} = $line);
	for my $w (@{$c->{worker}}, @{$c->{shard}}) {
		$c->tell($w, "to $line") if $w->{link};
	}
	$c->follow;
	return 1;
}

# The lines of the trace as they come.
sub follow {
	my ($c) = @_;
	$c->unfollow;
	pipe my $r, my $w or die "pipe: $!\n";
	$c->{follower} = $c->spawn('stat', $w, "$c->{bin}/falcon-stat", '-f', '-k',
		"$c->{dir}/keys/observe.key", $c->{address});
	close $w;
	$r->blocking(0);
	@{$c}{qw(lines_from text live judging)} = ($r, '', 0, 0);
}

sub unfollow {
	my ($c) = @_;
	return if !$c->{follower};
	kill 'KILL', $c->{follower};
	waitpid $c->{follower}, 0;
	$c->{follower} = 0;
}

# What has come by now: the version that is judged just now is $c->{judging}.
sub look {
	my ($c) = @_;
	return if !$c->{lines_from};
	while (sysread $c->{lines_from}, $c->{text}, 65536, length $c->{text}) {
	}
	while ($c->{text} =~ s/^(.*)\n//) {
		my $l = decode_json($1);
		my $ev = $l->{ev};
		$c->{per_epoch} = $l->{clocks_per_epoch} if $ev eq 'job';
		$c->{live} = 1 if $ev eq 'now';
		next if !$c->{live};
		$c->{judging} = $l->{version}
			if $ev eq 'update' && ($l->{clock} + 1) % $c->{per_epoch} == 0;
		$c->{judging} = 0 if $ev eq 'eval';
		$c->{joined}{$l->{worker}} = 1 if $ev eq 'join';
	}
}

# ---- workers

sub tell {
	my ($c, $w, $what) = @_;
	syswrite $w->{link}, "$what\n" or die "the relay of w$w->{n}: $!\n";
}

# What the relay has said: "held", "lost" or nothing.
sub heard {
	my ($c, $w) = @_;
	sysread $w->{link}, $w->{told}, 4096, length $w->{told};
	return $w->{told} =~ s/^(\S+)\n// ? $1 : '';
}

sub start_link {
	my ($c, $w) = @_;
	socketpair my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!\n";
	my $pid = fork_apart();
	if ($pid == 0) {
		open STDIN, '<&', $theirs;
		open STDOUT, '>&', $theirs;
		open STDERR, '>>', "$c->{dir}/relay.err";
		POSIX::close($_) for 3 .. 64;
		exec {"$here/relay"} "$here/relay" or POSIX::_exit(127);
	}
	close $theirs;
	@{$w}{qw(link relay told)} = ($ours, $pid, '');
	my $line = <$ours> // die "relay: no address\n";
	$line =~ /^at (\S+)/ or die "relay: $line\n";
	$w->{at} = $1;
	$ours->blocking(0);
	$c->tell($w, "from 127.0.$w->{n}.1");
	$c->tell($w, "to $c->{address}");
}

sub start_worker {
	my ($c, $w) = @_;
	$c->start_link($w) if !$w->{link};
	$c->leap("w$w->{n}", 0, 0);
	$w->{struck} = '';
	if ($w->{group}) {
		$w->{pid} = $c->spawn("w$w->{n}", undef, "$c->{bin}/falcon-ps", '-jx',
			'-K', "$c->{dir}/members/keyring", '-k', "$c->{dir}/keys/w$w->{n}.key",
			'-l', $c->group_at($w->{n}), '-s', "$c->{dir}/group.$w->{n}", '--scheme', $w->{group},
			'--upstream', $w->{at}, $c->{job});
		return;
	}
	$w->{pid} = $c->spawn_worker("w$w->{n}", "$c->{dir}/keys/w$w->{n}.key", $w->{emulate}, $w->{at});
}

sub spawn_worker {
	my ($c, $name, $key, $emulate, $at) = @_;
	return $c->spawn($name, undef, "$c->{bin}/falcon-work", '-k', $key, '-n', $name,
		'--cache', "$c->{dir}/cache", '--lanes', 1, $emulate ? ('--emulate', $emulate) : (), $at);
}

# Where a group server is; a number above theirs begins anew.
sub group_at { return "unix:$_[0]{dir}/at" . (1 + ($_[1] - 1) % @{$_[0]{groups}}) }

# A worker of a group server, which knows all others.
sub start_member {
	my ($c, $m) = @_;
	$c->leap("m$m->{n}", 0, 0);
	$m->{struck} = '';
	my @at = map { $c->group_at($m->{n} + $_) } 0 .. @{$c->{groups}} - 1;
	$m->{pid} = $c->spawn_worker("m$m->{n}", "$c->{dir}/members/work.key", $m->{emulate}, join ',', @at);
}

# One that takes the time it takes, and not another machine's, instead of the others.
sub hasten {
	my ($c) = @_;
	my @slow = @{$c->{worker}};
	my $fast = {n => @slow + 1, emulate => ''};
	push @{$c->{worker}}, $fast;
	$c->start_worker($fast);
	$c->until(sub { $c->{joined}{"w$fast->{n}"} });
	# Group servers stay to the end, with nobody.
	for my $w (grep { $_->{pid} && !$_->{group} } @slow, @{$c->{member}}) {
		$w->{struck} = {by => 'term', for => PATIENCE};
		kill 'TERM', $w->{pid};
	}
}

# ---- shards of other processes

# Number N joins; false: it is here.
sub start_shard {
	my ($c, $n) = @_;
	my $s = $c->{shard}[$n - 1];
	return 0 if $s->{pid};
	$c->start_link($s) if !$s->{link};
	unlink "$c->{dir}/$s->{name}.err";
	$c->leap($s->{name}, 0, 0);
	$s->{pid} = $c->spawn($s->{name}, undef, "$c->{bin}/falcon-ps", '-k', "$c->{dir}/keys/shard.key",
		'--shards', 1 + $n % 2, '--join', $s->{at},
		map { ('--rate-limit', $_) } grep { defined } ($c->{lines} // [])->[$n - 1]);
	$s->{struck} = '';
	return 1;
}

# Asks that it be drained; false: it is not here.
sub drain_shard {
	my ($c, $n) = @_;
	my $s = $c->{shard}[$n - 1];
	open my $f, '<', "$c->{dir}/$s->{name}.err" or return 0;
	my ($at) = join('', <$f>) =~ /: joined, listening on (\S+)/ or return 0;
	return 0 if !$s->{pid} || !$c->{ps};
	push @{$c->{syncs}}, $c->spawn('sync', undef, "$c->{bin}/falcon-sync", '-k',
		"$c->{dir}/keys/control.key", $c->{address}, 'drain', $at);
	return 1;
}

sub judge_shard {
	my ($c, $s, $status) = @_;
	delete $s->{pid};
	my $struck = $s->{struck};
	if ($struck) {
		$c->later($struck->{for}, sub { $c->start_shard($s->{n} - 100) if !$c->{over} });
	} elsif ($status >> 8 == 75) { # no coordinator was there for long
		$c->start_shard($s->{n} - 100);
	} elsif ($status != 0 || $c->said($s->{name}) !~ /done: (the job is done|drained by)/) {
		$c->fail("falcon-ps --join: status $status: " . $c->said($s->{name}));
	}
}

# ---- time

# What is due at some time from now on.
sub later {
	my ($c, $seconds, $what) = @_;
	push @{$c->{due}}, {at => time + $seconds, what => $what};
}

sub is_over { return $_[0]{over} }

# The status of one that ended; nothing: it has not.
sub ended {
	my ($pid) = @_;
	return waitpid($pid, WNOHANG) == $pid ? $? : undef;
}

# A fault that is none of ours.
sub fail {
	my ($c, $why) = @_;
	die { why => $why };
}

# An end of the coordinator: done, one of ours, or a finding.
sub judge_ps {
	my ($c, $status) = @_;
	$c->{ps} = 0;
	$c->unfollow;
	if (-e "$c->{state}/result.json") {
		$c->fail("falcon-ps: status $status: " . $c->said('ps')) if $status != 0;
		$c->{over} = 1;
	} elsif ($c->{ps_struck}) {
		my $wait = $c->{ps_struck};
		# 75: there is no snapshot of where it was.
		my $said = $c->said('ps');
		my $kept = $said =~ /.*stopped at clock (\d+) of/s && -e sprintf '%s/snapshot.%012d', $c->{state}, $1;
		$c->fail("falcon-ps: status $status for SIGTERM: $said")
			if $wait->{by} eq 'term' && $status != 0 && ($kept || $status >> 8 != 75);
		$c->{ps_struck} = undef;
		$c->later($wait->{for}, sub { $c->again });
	} else {
		$c->fail("falcon-ps: status $status: " . $c->said('ps'));
	}
}

# The next incarnation, or, while its disk is full, one more try.
sub again {
	my ($c) = @_;
	return if $c->start_ps;
	$c->fail('falcon-ps does not start again: ' . $c->said('ps')) if !$c->{full};
	$c->later(0.1, sub { $c->again });
}

sub judge_worker {
	my ($c, $w, $status, $name, $start) = @_;
	my $struck = $w->{struck};
	my $said = $c->said($name);
	delete $w->{pid};
	if ($struck) {
		# Of one that leaves, 1 says that nobody was there who took its leave, and the
		# signal itself that it had only begun.
		$c->fail("$name: status $status for SIGTERM: $said")
			if $struck->{by} eq 'term' && $status != 0 && $status >> 8 != 1 && $status != 15
				&& !($w->{group} && $status >> 8 == 75);
		$c->later($struck->{for}, sub { $c->$start($w) if !$c->{over} });
	} elsif ($status != 0 || $said !~ /done: the job is done/) {
		# It never reached a coordinator that was away for long.
		return $c->$start($w) if $status >> 8 == 75;
		$c->fail("$name: status $status: $said");
	}
}

# What has happened, and what is due; as often as something is waited for.
sub turn {
	my ($c) = @_;
	$c->look;
	my $now = time;
	my @now = grep { $_->{at} <= $now } @{$c->{due}};
	@{$c->{due}} = grep { $_->{at} > $now } @{$c->{due}};
	$_->{what}->() for @now;
	my $status;
	$c->judge_ps($status) if $c->{ps} && defined($status = ended($c->{ps}));
	return if $c->{over};
	for my $w (grep { $_->{pid} } @{$c->{worker}}) {
		$c->judge_worker($w, $status, "w$w->{n}", 'start_worker')
			if defined($status = ended($w->{pid}));
	}
	for my $m (grep { $_->{pid} } @{$c->{member}}) {
		$c->judge_worker($m, $status, "m$m->{n}", 'start_member')
			if defined($status = ended($m->{pid}));
	}
	for my $s (grep { $_->{pid} } @{$c->{shard}}) {
		$c->judge_shard($s, $status) if defined($status = ended($s->{pid}));
	}
	@{$c->{syncs}} = grep { !defined ended($_) } @{$c->{syncs}};
	if ($c->{ps} && $c->{follower} && defined ended($c->{follower})) {
		$c->{follower} = 0;
		$c->follow;
	}
}

# Waits until COMMAND is true; false: the job was over before, or it took too long.
sub until {
	my ($c, $command, $seconds) = @_;
	my $last = time + ($seconds // PATIENCE);
	while (!$c->{over}) {
		return 1 if $command->();
		return 0 if time > $last;
		$c->turn;
		sleep 0.0003;
	}
	return 0;
}

# All processes are gone.  The trace of a group server that still ran, as it heard no more of
# the end, has none.
sub stop {
	my ($c) = @_;
	for my $w (grep { $_->{group} && $_->{pid} } @{$c->{worker}}) {
		defined ended($w->{pid}) ? $w->{pid} = 0 : ($c->{torn} = 1);
	}
	for my $pid (grep { $_ } $c->{ps}, $c->{follower}, @{$c->{syncs}},
		map { @{$_}{qw(pid relay)} } @{$c->{worker}}, @{$c->{member}}, @{$c->{shard}}) {
		kill 'KILL', $pid;
		waitpid $pid, 0;
	}
}

1;
