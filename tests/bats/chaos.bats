# Whatever is killed, stopped, cut off or filled up while something is under way: the job
# ends with the same model.  `make chaos` has longer schedules, and more of them.

load common

# Three at once, as most of the time they wait; the last has group servers.
@test "three short schedules of faults: the same model, and an audit that passes" {
	local i pids=() levels=(-s -s -gs)
	draw
	for i in 1 2 3; do
		FALCON_BIN=$bin start "chaos$i" "$root/tests/chaos/run" "${levels[i - 1]}" "$((RANDOM * 10 + i))" 1
		pids+=("$pid")
	done
	for i in 1 2 3; do
		ended "${pids[i - 1]}" "chaos$i" || {
			cat "$BATS_TEST_TMPDIR/chaos$i.out"
			return 1
		}
	done
}

# Under load a copy of the harness is still that when a fault strikes it.
@test "a process that is ended before it is a program ends alone, and at once" {
	local said
	said=$(perl -I"$root/tests/chaos" -MCluster -e '
		END { print "$$ tidies up\n" if $$ != $me }
		$me = $$;
		$SIG{TERM} = sub { exit 1 };
		my $c = Cluster->new(dir => shift, workers => []);
		for (1 .. 100) {
			my $pid = $c->spawn("one", undef, "sleep", 60);
			kill "TERM", $pid;
			waitpid $pid, 0;
			print "status $?\n" if $? != 15;
		}' "$BATS_TEST_TMPDIR")
	same "what is said" "$said" ""
}
