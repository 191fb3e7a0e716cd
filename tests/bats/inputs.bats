# A job goes on with the data, the net and the weights that it was begun with, or says so.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	draw
	local file
	for file in train test; do
		awk -v seed="$RANDOM" 'BEGIN { srand(seed); print "a,b,c,d,y"
			for (i = 0; i < 256; i++)
				printf "%.3f,%.3f,%d,%d,%d\n", rand(), rand(), i % 5, i % 3, i % 4
		}' >"$file.csv"
	done
	printf 'input 4\ndense 4\nrelu\ndense 4\n' >small.net
	cat >small.job <<-END
		[job]
		name = small
		seed = 1
		epochs = 12
		hashes = 1
		[model]
		file = small.net
		[data]
		format = csv
		train = train.csv
		test = test.csv
		label = y
		[batch]
		size = 64
		task = 8
		[optimizer]
		kind = sgd
		lr = 0.1
		[sync]
		scheme = epsp
		[state]
		clocks = $((RANDOM % 3 + 1))
	END
	job=(small.job)
}

# some: a start that is killed after some clocks.
some() {
	at_unix
	slow a 1 500
	soon "some clocks" lines $((RANDOM % 4 + 3)) '"ev":"update"'
	kill -KILL "$pid"
	killed
}

# finished [OPTION...]: a start that comes to its end.
finished() {
	at_unix "$@"
	work quick --lanes 1
	ended "$ps" ps
}

# answer [OPTION...]: what a start says that ends by itself; its status is $status.
answer() {
	run timeout 20 falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" "$@" "${job[@]}"
}

# contents: of the state folder.
contents() {
	find "$state" -type f ! -name lock -exec sha256sum {} + | sort -k 2
}

# refuses KIND KEY FILE [OPTION...]: a start says that the file is another one, and what it
# was, and leaves all as it is.
refuses() {
	local before
	before=$(contents)
	answer "${@:4}"
	same "status ($output)" "$status" 2
	[[ $output =~ "falcon-ps: $3: $2 is "([0-9a-f]{64})", but $state was begun with "([0-9a-f]{64})": --accept-change $1 goes on with it" ]] || {
		echo "not of $3: $output"
		return 1
	}
	[ "${BASH_REMATCH[1]}" != "${BASH_REMATCH[2]}" ]
	same "the state" "$(contents)" "$before"
}

# unlike TEXT [OPTION...]: a start says with one line that the snapshot has other sizes, and
# leaves all as it is.
unlike() {
	local before
	before=$(contents)
	answer "${@:2}"
	same "status ($output)" "$status" 2
	same "lines ($output)" "${#lines[@]}" 2 # the first one has what the job needs
	has "$output" "$1 of shapes "
	has "$output" ", the job $sizes of shapes "
	[[ $output != *--accept-change* ]]
	same "the state" "$(contents)" "$before"
}

@test "data, test data or a net that were changed are refused by name, and what is the same goes on" {
	local calm row
	finished
	calm=$(member sha256)
	again
	some
	mkdir was
	cp ./*.csv small.net was
	row=$((RANDOM % 200 + 2))
	# A value, another row more, two that change places.
	awk -F, -v OFS=, -v row="$row" 'NR == row { $3 += 1 } 1' was/train.csv >train.csv
	refuses data data.train-hash train.csv
	(cat was/train.csv && echo 0,0,0,0,0) >train.csv
	sizes="257 and 256 samples, 40 weights"
	unlike ": has 256 and 256 samples, 40 weights"
	has "$output" "train.csv: differs from the file that $state began with: snapshot"
	unlike ": has 256 and 256 samples, 40 weights"
	awk -v row="$row" 'NR == row { held = $0; next } 1; NR == row + 1 { print held }' \
		was/train.csv >train.csv
	refuses data data.train-hash train.csv
	cp was/train.csv train.csv
	awk -F, -v OFS=, -v row="$row" 'NR == row { $5 = ($5 + 1) % 4 } 1' was/test.csv >test.csv
	refuses data data.test-hash test.csv
	cp was/test.csv test.csv
	sed -i 's/relu/tanh/' small.net
	refuses net model.file-sha256 small.net
	# What was accepted is not what is another one.
	refuses net model.file-sha256 small.net --accept-change data
	answer --accept-change weights
	same "status ($output)" "$status" 2
	has "$output" "--accept-change: 'weights' is not data, net or init"
	cp was/small.net small.net
	# Any other key: the first one that differs.
	answer --set optimizer.lr=0.2 --set job.verify=50%
	same "status ($output)" "$status" 2
	has "$output" "$state: holds the state of another job: job.verify is none, not 50%"
	answer --set job.epochs=1
	same "status ($output)" "$status" 2
	has "$output" "$state: job.epochs is 1, but the job there has 12, of which $((
		$(find "$state" -name 'snapshot.0*' | sed 's/.*[.]0*\([0-9]\)/\1/' | sort -n | tail -n 1) / 4)) are done"
	# Another place, time, packing, column of the label and comment are nothing.
	mv "$state" moved
	state=$BATS_TEST_TMPDIR/moved
	mkdir sub
	mv small.net test.csv sub
	awk -F, -v OFS=, '{ print $5, $1, $2, $3, $4 }' was/train.csv | gzip -1 >sub/train.csv.gz
	rm train.csv
	(echo "# a comment" && sed -e 's#= \(test.csv\|small.net\)#= sub/\1#' \
		-e "s#= train.csv#= $PWD/sub/train.csv.gz#" small.job) >other.job
	job=(other.job)
	finished
	has "$(<ps.err)" "small: resumed at clock "
	same "the model" "$(member sha256)" "$calm"
	falcon-stat --audit "$state"
	jq -se '(map(select(.ev == "job"))[0] | [.hash, .model, .data]) ==
		(map(select(.ev == "restart"))[0] | [.hash, .model, .data])' "$state/trace.jsonl"
}

@test "--accept-change: told in log, journal and trace; the audit speaks of two parts" {
	local at
	some
	sed -i 's/relu/tanh/' small.net
	echo 0,0,0,0,0 >>test.csv
	sizes="256 and 257 samples, 40 weights"
	unlike ": has 256 and 256 samples, 40 weights" --accept-change data --accept-change net
	sed -i -e '$d' -e '2s/^[^,]*/0.5/' test.csv
	refuses net model.file-sha256 small.net --accept-change data
	# A net of another shape.
	cp small.net was
	sed -i '2s/4/5/' small.net
	sizes="256 and 256 samples, 49 weights"
	unlike ": has 256 and 256 samples, 40 weights" --accept-change net --accept-change data
	cp was small.net
	at_unix --accept-change data --accept-change net
	at=$(sed -n 's/.*resumed at clock \([0-9]*\) .*/\1/p' ps.err)
	has "$(<ps.err)" "small: goes on at clock $at with other files: data net"
	# From the same snapshot again, without a word: it was accepted.
	kill -KILL "$ps"
	wait "$ps" || :
	finished
	has "$(<ps.err)" "small: resumed at clock $at "
	run falcon-stat --audit "$state"
	same "status ($output)" "$status" 0
	has "$output" "audit: ok: 48 clocks, "
	has "$output" "audit: 2 parts, each with other files: the last from clock $at, other data net"
	same "parts" "$(falcon-stat --json --audit "$state" | jq .parts)" 2
	same "the journal" "$(jq -c '[.clock, .by]' "$state/policy.jsonl")" \
		"[$at,\"--accept-change data net\"]"
	same "the trace" "$(jq -c 'select(.ev == "restart") | [.clock, .accepted]' "$state/trace.jsonl" |
		sort -u)" "[$at,\"data net\"]"
	grep -q "^audit: not proven, .*accepted 1$" <<<"$output"
	run falcon-stat --audit --recompute 100% "$state"
	has "$output" "the run has parts, each with other files"
	# Who leaves out that it was accepted is found out.
	jq -c 'if .ev == "restart" then del(.accepted) else . end | del(.h)' "$state/trace.jsonl" |
		chain >forged
	run falcon-stat --audit forged
	same "status ($output)" "$status" 1
	has "$output" ": restart: model is of another job"
	has "$output" ": restart: data is of another job"
	# The same files again are another change.
	sed -i 's/tanh/relu/' small.net
	refuses net model.file-sha256 small.net
}

@test "what is accepted stands beside changes of policy that hold again, and more epochs" {
	job=(--set state.clocks=1000 small.job)
	at_unix
	slow a 1 500
	falcon-sync -k "$keys/control.key" unix:sock set scheme=epsp:1
	soon "some clocks" lines 3 '"ev":"update"'
	[ $((RANDOM % 2)) = 0 ] || falcon-sync -k "$keys/control.key" unix:sock checkpoint
	soon "some more" lines 6 '"ev":"update"'
	falcon-sync -k "$keys/control.key" unix:sock set scheme=epsp:2 lanes.a=1:2
	kill -KILL "$pid"
	killed
	sed -i '2s/^[^,]*/0.5/' train.csv
	at_unix --accept-change data
	kill -KILL "$ps"
	wait "$ps" || :
	(echo "# a comment" && cat small.job) >other.job
	job=(--set job.epochs=13 --set state.clocks=1000 other.job)
	finished
	has "$(falcon-stat --audit "$state")" "audit: 2 parts, each with other files: the last from clock "
	same "the journal" "$(jq -r .by "$state/policy.jsonl" | tr '\n' ' ')" \
		"control control --accept-change data "
	# The policy that holds is the one of before, settings of workers included.
	same "what holds" "$(jq -cS .policy "$state/policy.jsonl" | tail -1)" \
		"$(jq -cS .policy "$state/policy.jsonl" | sed -n 2p)"
	has "$(tail -1 "$state/policy.jsonl")" '"a":'
}

@test "weights that were changed; a job that is done, and one that is to have more epochs" {
	finished
	cp "$state/model.safetensors" first
	again
	job=(--set model.init=first "${job[@]}")
	finished --set job.epochs=2
	cp first was
	printf '\0\0\0\076' | dd of=first bs=1 conv=notrunc status=none seek=$(($(stat -c %s first) - 4))
	refuses init model.init-sha256 first --set job.epochs=2
	refuses init model.init-sha256 first --set job.epochs=3
	cp was first
	echo 0,0,0,0,0 >>train.csv
	sizes="257 and 256 samples, 40 weights"
	unlike ": has 256 and 256 samples, 40 weights" --set job.epochs=2
	unlike ": has 256 and 256 samples, 40 weights" --set job.epochs=3
	# A job that is done does not begin anew: its model is not of these data.
	unlike ": has 256 and 256 samples, 40 weights" --set job.epochs=2 --restart
	# It is done, whatever is accepted.
	answer --set job.epochs=2 --accept-change data
	same "status ($output)" "$status" 0
	has "$output" "small: the job is done"
	unlike ": has 256 and 256 samples, 40 weights" --set job.epochs=3 --accept-change data
	[ -e "$state/result.json" ]
	sed -i -e '$d' -e '2s/^[^,]*/0.5/' train.csv
	finished --set job.epochs=3 --accept-change data
	has "$(falcon-stat --audit "$state")" \
		"audit: 2 parts, each with other files: the last from clock 8, other data"
	# Begun again from its first clock nothing is accepted, or told.
	again
	some
	sed -i '2s/^[^,]*/0.25/' train.csv
	finished --restart
	falcon-stat --audit "$state"
	same "parts" "$(falcon-stat --json --audit "$state" | jq .parts)" 1
	[ -e "$state/trace.1.jsonl" ]
}

@test "weights of --from that were changed are named by their file" {
	finished
	cp "$state/model.safetensors" first
	again
	job=(--from first "${job[@]}")
	some
	printf '\0\0\0\076' | dd of=first bs=1 conv=notrunc status=none seek=$(($(stat -c %s first) - 4))
	refuses init model.from-sha256 first
}

@test "the state of an earlier Falcon is refused by name" {
	some
	sed -i -e '/-hash = /d' -e '/-sha256 = /d' "$state/job"
	answer
	same "status ($output)" "$status" 2
	has "$output" "$state: holds the state of an earlier Falcon, which kept no hash of net and data"
}

@test "a result whose files are lost fails with the reason; from the last snapshot they come back" {
	local was file
	job=(--set optimizer.ema=0.9 --set state.best=yes "${job[@]}")
	finished
	was=$(cd "$state" && sha256sum ./*.safetensors)
	for file in best average model; do
		mv "$state/$file.safetensors" kept
		answer
		same "status ($output)" "$status" 1
		has "$output" "$state/$file.safetensors: No such file or directory; without $state/result.json the job goes on from its last snapshot"
		head -c 100 kept >"$state/$file.safetensors"
		answer --json
		same "status ($output)" "$status" 1
		has "$output" "$file.safetensors: its SHA-256 is "
		[ "$file" != best ] || mv kept "$state/best.safetensors"
	done
	# Nor is there a snapshot.
	cp -r "$state" whole
	rm -r "$state"/snapshot.0* "$state/model.safetensors"
	answer
	has "$output" "; without $state/result.json the job goes on from its last snapshot; where there is none, --restart begins it again"
	rm "$state/result.json"
	finished --restart
	rm -r "$state"
	mv whole "$state"
	rm "$state/result.json"
	finished
	same "files" "$(cd "$state" && sha256sum ./*.safetensors)" "$was"
	falcon-stat --audit "$state"
}

@test "after a crash: an emptied trace is begun anew, what is torn in the journal is cut off" {
	local tear
	finished
	was=$(member sha256)
	again
	at_unix
	slow a 1 500
	falcon-sync -k "$keys/control.key" unix:sock set clones=no
	soon "some clocks" lines 4 '"ev":"update"'
	kill -KILL "$pid"
	killed
	for tear in '{"clock":3' '{"clock":3\n' '\0\0\0\0\0\n'; do
		# shellcheck disable=SC2059 # it has escapes
		printf "$tear" >>"$state/policy.jsonl"
		at_unix
		has "$(<ps.err)" "policy.jsonl: its end was torn: "
		same "lines" "$(wc -l <"$state/policy.jsonl")" 1
		kill -KILL "$ps"
		wait "$ps" || :
	done
	# One that is whole, and not the one that follows, no crash has left.
	cp "$state/policy.jsonl" policy
	sed 's/"by":"[^"]*"/"by":"eve"/' policy >>"$state/policy.jsonl"
	answer
	same "status ($output)" "$status" 2
	has "$output" "policy.jsonl:2: it does not chain the line before, or was changed"
	cp policy "$state/policy.jsonl"
	# A trace that is lost, and a snapshot that cannot be read: nothing is begun anew.
	mv "$state" kept
	cp -r kept "$state"
	: >"$state/trace.jsonl"
	for file in "$state"/snapshot.0*/manifest.json; do
		sed -i 's/"format":3/"format":2/; s/,"h":.*/}/' "$file"
		chain <"$file" >chained
		mv chained "$file"
	done
	answer
	same "status ($output)" "$status" 75
	has "$output" "manifest.json: format: not 3: it is of an earlier Falcon: --restart begins"
	rm -r "$state"/snapshot.0*
	truncate -s 4096 "$state/trace.jsonl"
	answer
	same "status ($output)" "$status" 75
	has "$output" "; there is no snapshot to go on from: --restart begins at the first clock"
	rm -r "$state"
	cp -r kept "$state"
	rm "$state/trace.jsonl"
	at_unix
	has "$(<ps.err)" "trace.jsonl: is gone, and a new trace begins at clock "
	[ ! -e "$state/trace.1.jsonl" ]
	kill -KILL "$ps"
	wait "$ps" || :
	rm -r "$state"
	mv kept "$state"
	drawn : 'truncate -s 4096'
	: >"$state/trace.jsonl"
	[ "$one" = : ] || truncate -s 4096 "$state/trace.jsonl"
	finished
	has "$(<ps.err)" "trace.jsonl: has lost its first line: it was put aside, and a new trace begins at clock "
	same "the model" "$(member sha256)" "$was"
	has "$(falcon-stat "$state/trace.jsonl")" "small"
	same "its first line" "$(head -n 1 "$state/trace.jsonl" | jq -r .ev)" job
}

@test "what would be found at the end is found at the start; a folder that is removed is made again" {
	finished
	was=$(member sha256)
	echo x >"$state/incarnation"
	answer --set job.epochs=13
	same "status ($output)" "$status" 2
	has "$output" "$state/incarnation: is not a number"
	[ -e "$state/result.json" ]
	for file in model.safetensors result.json; do
		again
		mkdir -p "$state/$file"
		answer
		[ "$status" = 1 ] || same "status ($output)" "$status" 2
		has "$output" "$state/$file: "
	done
	again
	at_unix
	slow a 1 500
	soon "some clocks" lines 3 '"ev":"update"'
	until rm -rf "$state" 2>err; do :; done
	work quick --lanes 1
	ended "$ps" ps
	has "$(<ps.err)" "$state: was removed while the job ran; "
	same "the model" "$(member sha256)" "$was"
	same "its file" "$(sha256sum <"$state/model.safetensors")" "$was  -"
}

@test "a name that would be a path is refused" {
	answer --set job.name=../x
	same "status ($output)" "$status" 2
	has "$output" "--set: job.name: '../x' has a /, but names the state folder"
}
