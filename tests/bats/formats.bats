# Data in other formats than IDX, from file to model, with real processes.

load common
load job

# The same drawn numbers in each format: `make NAME ROWS SEED` writes NAME.csv, NAME.tsv,
# NAME.x.npy, NAME.x64.npy, NAME.y.npy and NAME.safetensors: samples of 4 values around one
# of 3 centres.
setup_file() {
	for_file
	cat >"$BATS_FILE_TMPDIR/make" <<-'END'
		use strict;
		my ($name, $rows, $seed) = @ARGV;
		srand($seed);
		sub normal { sqrt(-2 * log(1 - rand)) * cos(6.283185307 * rand) }
		sub file {
			open my $f, ">:raw", $_[0] or die;
			print $f $_[1];
			close $f or die;
		}
		sub npy {
			my ($file, $descr, $shape, $data) = @_;
			my $head = "{'descr': '$descr', 'fortran_order': False, 'shape': ($shape), }";
			$head .= " " x (63 - (10 + length $head) % 64) . "\n";
			file($file, "\x93NUMPY\1\0" . pack("v", length $head) . $head . $data);
		}
		my @centre = ([5, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3, 5.6, 2]);
		my ($csv, $tsv, @x, @y) = ("", "");
		for my $i (0 .. $rows - 1) {
			my $y = int rand 3;
			my @row = map { unpack "f<", pack "f<", $_ + 0.25 * normal } @{$centre[$y]};
			my @text = map { sprintf "%.9g", $_ } @row;
			$csv .= join(",", @text[0, 1], $i % 2 ? "\"$y\"" : $y, @text[2, 3]) . "\r\n";
			$tsv .= join("\t", $y, @text) . "\n";
			push @x, @row;
			push @y, $y;
		}
		file("$name.csv", "a,\"b, quoted\",species,c,d\r\n$csv");
		file("$name.tsv", "species\ta\tb\tc\td\n$tsv");
		npy("$name.x.npy", "<f4", "$rows, 4", pack "f<*", @x);
		npy("$name.x64.npy", "<f8", "$rows, 4", pack "d<*", @x);
		npy("$name.y.npy", "<i8", "$rows,", pack "q<*", @y);
		my $bytes = 16 * $rows;
		my $head = sprintf '{"y":{"dtype":"I32","shape":[%d],"data_offsets":[0,%d]},' .
			'"x":{"dtype":"F32","shape":[%d,4],"data_offsets":[%d,%d]}}',
			$rows, 4 * $rows, $rows, 4 * $rows, 4 * $rows + $bytes;
		file("$name.safetensors", pack("Q<", length $head) . $head .
			pack("l<*", @y) . pack("f<*", @x));
	END
	cd "$BATS_FILE_TMPDIR"
	perl make train 901 7
	perl make test 300 8
}

setup() {
	for_test
	ln -s "$BATS_FILE_TMPDIR"/{train,test}.* .
	printf 'input 4\ndense 16\ntanh\ndense 3\n' >flower.model
	draw
}

# job_of LINE...: the data section has these lines.
job_of() {
	cat >flower.job <<-END
		[job]
		name = flower
		seed = 3
		epochs = 12
		[model]
		file = flower.model
		[data]
		mean = 5.8, 3.1, 3.8, 1.2
		std = 0.8, 0.4, 1.8, 0.8
		$(printf '%s\n' "$@")
		[batch]
		size = 60
		task = 7
		[optimizer]
		kind = momentum
		lr = 0.1
		momentum = 0.9
		[sync]
		scheme = epsp
	END
	job=(flower.job)
}

csv() {
	job_of 'format = csv' 'train = train.csv' 'test = test.csv' 'label = species'
}

npy() {
	job_of 'format = npy' "train = train.$1.npy" 'train-labels = train.y.npy' \
		"test = test.$1.npy" 'test-labels = test.y.npy'
}

# learned: the job ends well, knows 95 % of the test set, and has the model of the others.
learned() {
	judge
	jq -se '[.[] | select(.ev == "eval")][-1] | (.right / .total) > 0.95' \
		"$state/trace.jsonl"
}

@test "csv, one worker" {
	csv
	serve
	work alone --lanes 1
	learned
}

@test "csv, three workers of unequal speed, one of them killed" {
	csv
	serve --min-workers 3
	slow a 1
	slow b 0.5
	slow c 0.2
	at_clock 20
	kill -KILL "$pid"
	learned
}

@test "npy of single precision, three workers, one with a copy of the data" {
	npy x
	mkdir copy
	cp -L train.* test.* copy
	serve --min-workers 3
	slow a 1
	slow b 0.3
	work here --lanes 2 --data copy
	learned
}

@test "npy of double precision, tsv, safetensors: the same model; --eval says the same" {
	npy x64
	serve
	work alone --lanes 2
	learned
	again
	job_of 'format = tsv' 'train = train.tsv' 'test = test.tsv' 'label = species'
	serve
	work again --lanes 2
	learned
	again
	job_of 'format = safetensors' 'train = train.safetensors' 'test = test.safetensors' \
		'features = x' 'label = y'
	serve
	work more --lanes 2
	learned
	falcon-work --eval "$state/model.safetensors" --json flower.job >judged
	same "right" "$(jq .right judged)" \
		"$(jq -s '[.[] | select(.ev == "eval")][-1].right' "$state/trace.jsonl")"
	same "right and all, by their labels" "$(jq -c '[.right, .total]' judged)" \
		"$(jq -c '[.classes | map(.right), map(.total) | add]' judged)"
}

@test "files one after the other are one set" {
	head -n 400 train.csv >one.csv
	{
		head -n 1 train.csv
		tail -n +401 train.csv
	} >two.csv
	job_of 'format = csv' 'train = one.csv, two.csv' 'test = test.csv' 'label = species'
	serve
	work alone --lanes 1
	learned
}

# refusal TEXT LINE...: --check of such data ends with 2 and this.
refusal() {
	local want=$1 got=0
	shift
	job_of "$@"
	falcon-ps --check flower.job >out 2>err || got=$?
	same "status ($(<err))" "$got" 2
	same "what is said" "$(<err)" "falcon-ps: $want"
	same "what is printed" "$(<out)" ""
}

@test "what is wrong with data is said with file, line and value" {
	local all=('test = test.csv' 'label = species')
	{
		head -n 5 train.csv
		printf '1,2,1,,4\n'
	} >hole.csv
	refusal "hole.csv:6: column 'c': is empty" 'format = csv' 'train = hole.csv' "${all[@]}"
	printf 'a,b,species\n1,2,1\n' >two.csv
	refusal 'two.csv: samples of 2 values, but the model takes 4' 'format = csv' \
		'train = two.csv' "${all[@]}"
	refusal 'two.csv: samples of another type or shape than in the file before it' \
		'format = csv' 'train = train.csv,two.csv' "${all[@]}"
	refusal "train.csv:1: no column is called 'kind' (data.label)" 'format = csv' \
		'train = train.csv' 'test = test.csv' 'label = kind'
	refusal 'train.y.npy: one dimension only: labels, not samples?' 'format = npy' \
		'train = train.y.npy' 'train-labels = train.y.npy' 'test = test.x.npy' \
		'test-labels = test.y.npy'
	refusal 'train.x.npy: 2 dimensions: samples, not labels?' 'format = npy' \
		'train = train.x.npy' 'train-labels = train.x.npy' 'test = test.x.npy' \
		'test-labels = test.y.npy'
	refusal "train.safetensors: there is no tensor 'z'" 'format = safetensors' \
		'train = train.safetensors' 'test = test.safetensors' 'features = z' 'label = y'
	refusal 'flower.job: data.label: missing' 'format = csv' 'train = train.csv' \
		'test = test.csv'
	refusal 'flower.job:11: data.train: is not for this data.format' 'format = idx' \
		'train = train.csv' 'train-images = a' 'train-labels = b' 'test-images = c' \
		'test-labels = d'
	refusal 'flower.job: data.window: missing
falcon-ps: flower.job:8: data.mean: does nothing for this data.format' 'format = text' \
		'train = train.csv' 'test = test.csv'
}

@test "a file is read to its last byte: gzip members and zeros, nothing else, nothing less" {
	local all=('test = test.csv' 'label = species') file cut at
	local tensors=('format = safetensors' 'test = test.safetensors' 'features = x' 'label = y')
	local arrays=('format = npy' 'train-labels = train.y.npy' 'test = test.x.npy'
		'test-labels = test.y.npy')
	# Two members are one file, what pads them is none of it; a second file as it is, is not.
	{
		head -n 400 train.csv | gzip -c
		tail -n +401 train.csv | gzip -c
		head -c $((RANDOM % 600)) /dev/zero
	} >two.csv.gz
	refusal 'two.csv.gz: has 901 rows, not 902' 'format = csv' 'train = two.csv.gz' \
		'samples = 902' "${all[@]}"
	cat train.csv >>two.csv.gz
	at=$(($(stat -c %s two.csv.gz) - $(stat -L -c %s train.csv)))
	refusal "two.csv.gz: byte $at: neither a gzip member nor zero padding" 'format = csv' \
		'train = two.csv.gz' "${all[@]}"
	# Without its last bytes, which are no data but their sum; also where the last of the
	# data is not wanted.
	for file in train.csv train.safetensors train.x.npy; do
		cut=$((1 + RANDOM % 8))
		gzip -c "$file" | head -c -$cut >"$file.gz"
	done
	refusal 'train.csv.gz: compressed data is truncated' 'format = csv' \
		'train = train.csv.gz' "${all[@]}"
	refusal 'train.safetensors.gz: compressed data is truncated' "${tensors[@]}" \
		'train = train.safetensors.gz' 'samples = 60'
	refusal 'train.x.npy.gz: compressed data is truncated' "${arrays[@]}" \
		'train = train.x.npy.gz' 'samples = 60'
	# More than its tensors is no safetensors file, be it data or weights.
	cp -L train.safetensors more.safetensors
	head -c 64 /dev/zero >>more.safetensors
	refusal 'more.safetensors: trailing bytes after the data' "${tensors[@]}" \
		'train = more.safetensors' 'samples = 60'
	job_of "${tensors[@]}" 'train = train.safetensors'
	for_trainers
	head -c 64 /dev/zero >>init
	run falcon-ps --check flower.job
	same "status" "$status" 2
	same "what is said" "$output" \
		'falcon-ps: init: trailing bytes after the data'
}

@test "a file of another kind is called what it is, by each reader" {
	local all=('test = test.csv' 'label = species') file want line program
	local arrays=('format = npy' 'train-labels = train.y.npy' 'test = test.x.npy'
		'test-labels = test.y.npy')
	mkdir kinds
	gzip -c train.csv | gzip -c >kinds/twice.gz
	xz -c <train.csv >kinds/xz
	zstd -qc <train.csv >kinds/zst
	tar chf kinds/tar train.csv
	gzip -c kinds/tar >kinds/tar.gz
	iconv -f utf-8 -t utf-16 train.csv >kinds/utf16
	printf '<!DOCTYPE html>\n<html>\n' >kinds/html
	printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 9\n' \
		"$(hash a)" >kinds/lfs
	/usr/bin/python3 - <<-'END'
		import pickle, zipfile
		for n in 2, 3, 4, 5:
		    pickle.dump({"data": [1.5] * 99}, open("kinds/pickle%d" % n, "wb"), n)
		for name, inner in ("zip", "train.csv"), ("npz", "x.npy"), ("pt", "net/data.pkl"), \
		        ("xlsx", "[Content_Types].xml"):
		    zipfile.ZipFile("kinds/" + name, "w").writestr(inner, "a,b,species\n1,2,0\n")
	END
	for line in 'twice.gz holds what is gzip-compressed: gunzip it' \
		'xz is xz-compressed: unxz it' 'zst is zstd-compressed: unzstd it' \
		'tar is a tar archive: unpack it' \
		'tar.gz holds what is a tar archive: unpack it' \
		'utf16 is UTF-16 text: save it as UTF-8' 'html is a page of HTML' \
		'lfs is a Git LFS pointer: git lfs pull' \
		'npz is an .npz archive: save each array with numpy.save' \
		'pt is a PyTorch file: save it as safetensors' \
		'xlsx is a workbook: save it as CSV' 'zip is a zip archive: unpack it' \
		pickle{2,3,4,5}' is a Python pickle: save it with numpy.save'; do
		file=kinds/${line%% *} want=${line#* }
		refusal "$file: $want" 'format = csv' "train = $file" "${all[@]}"
		refusal "$file: $want" "${arrays[@]}" "train = $file"
		refusal "$file: $want" 'format = safetensors' "train = $file" \
			'test = test.safetensors' 'features = x' 'label = y'
		refusal "$file: $want" 'format = cifar10' "train = $file" 'test = test.csv'
		refusal "$file: $want" 'format = idx' "train-images = $file" \
			"train-labels = $file" 'test-images = a' 'test-labels = b'
		# As texts these may be what is to be learnt, if long enough.
		job_of 'format = text' "train = $file" 'test = test.csv' 'window = 5'
		sed -i '/^mean/d; /^std/d' flower.job
		run falcon-ps --check flower.job
		case $file in
		*utf16 | *html) [[ $output != *"$want"* ]] ;;
		*) same "what is said of a text" "$output" "falcon-ps: $file: $want" ;;
		esac
		# A gzip file is no job, net or policy, whatever it holds.
		[ "${want#holds}" = "$want" ] || want='is gzip-compressed: gunzip it'
		csv
		sed -i "s,^file = .*,file = $file," flower.job
		for program in "ps --check flower.job" "ps --check $file" \
			"sync -k $keys/control.key unix:sock apply $file" \
			"work --emulate @$file -k $keys/work.key unix:sock"; do
			# shellcheck disable=SC2086 # several words
			run falcon-$program
			same "status of $program ($output)" "$status" 2
			has "$output" "$file: $want"
		done
	done
	# One array for another.
	refusal 'train.x.npy: is a .npy file' 'format = csv' 'train = train.x.npy' "${all[@]}"
	refusal 'train.safetensors: is a safetensors file' "${arrays[@]}" \
		'train = train.safetensors'
	csv
	sed -i 's,^file = .*,file = train.safetensors,' flower.job
	run falcon-ps --check flower.job
	same "what is said" "$output" 'falcon-ps: train.safetensors: is a safetensors file'
	gzip -c flower.job >trace.jsonl.gz
	run falcon-stat trace.jsonl.gz
	same "status" "$status" 2
	same "what is said" "$output" \
		'falcon-stat: trace.jsonl.gz:1: the file is gzip-compressed: gunzip it'
}

# foreign FILE COPY: COPY is what an editor elsewhere makes of FILE: a byte order mark at its
# beginning and lines that end in CRLF, or one of the two.
foreign() {
	(
		umask 077
		case $((RANDOM % 3)) in
		0) sed 's/$/\r/' "$1" ;;
		1) sed '1s/^/\xef\xbb\xbf/' "$1" ;;
		*) sed '1s/^/\xef\xbb\xbf/; s/$/\r/' "$1" ;;
		esac >"$2"
	)
}

@test "texts with a byte order mark or lines that end in CRLF are read as they are" {
	local name
	csv
	# Jobs, also with a key that is set below a section's first line, nets, keys.
	serve
	work alone --lanes 1
	wait "$ps"
	name=$(jq -r .sha256 "$state/result.json")
	again
	mv flower.model plain.model
	foreign plain.model flower.model
	mv flower.job plain.job
	foreign plain.job flower.job
	mkdir "foreign keys"
	for key in keyring work.key control.key; do
		foreign "$keys/$key" "foreign keys/$key"
	done
	local keys="$PWD/foreign keys"
	falcon-key add -K "$keys/keyring" more
	falcon-key revoke -K "$keys/keyring" more
	serve --set job.name=flower
	start idle falcon-sync -k "$keys/control.key" "$ready" show
	wait "$pid"
	# Policies, from a file and from a pipe.
	printf '{"clones": false}\n{"clones": true}\n' >plain
	foreign plain policy
	falcon-sync -k "$keys/control.key" "$ready" apply policy
	falcon-sync -k "$keys/control.key" --min-dwell 0 "$ready" apply - <policy
	# Recorded speeds, a file of machines.
	printf '0 1\n5 loop\n' >plain
	foreign plain speeds
	printf '[alone]\ntrace = speeds\nrate = 100000\ncores = 1\n' >plain
	foreign plain machines
	work alone --lanes 1 --emulate @machines
	wait "$ps"
	same "the model" "$(jq -r .sha256 "$state/result.json")" "$name"
	foreign "$state/trace.jsonl" trace
	falcon-stat --audit trace
	falcon-proj trace
}

# columns FILE PLACE...: FILE has the columns of test.csv at these places, from 0.
columns() {
	perl -MText::ParseWords -ne 'BEGIN { @place = splice @ARGV, 1 } s/\r?\n//;
		print join(",", (parse_line(",", 1, $_))[@place]), "\n"' test.csv "${@:2}" >"$1"
}

@test "columns of a table have the names of the first training file; the label is anywhere" {
	local name=(a 'b, quoted' species c d) place=() i j one two line rest
	csv
	# The label elsewhere: the same set.
	place=(0 1 3 4)
	i=$((RANDOM % 5))
	columns label.csv "${place[@]:0:i}" 2 "${place[@]:i}"
	serve --set job.epochs=1
	work alone --lanes 1
	wait "$ps"
	falcon-work --eval "$state/model.safetensors" flower.job >want
	sed -i 's/^test = .*/test = label.csv/' flower.job
	falcon-ps --check flower.job
	falcon-work --eval "$state/model.safetensors" flower.job >got
	same "the label at $i" "$(<got)" "$(<want)"
	# Two columns that are not the label's, the one for the other.
	place=(0 1 3 4)
	i=$((RANDOM % 3)) j=$((i + 1 + RANDOM % (3 - i)))
	one=${place[i]} two=${place[j]} place[i]=$two place[j]=$one
	columns moved.csv "${place[@]}" 2
	line="moved.csv:1: column $((i + 1)) is '${name[two]}', not '${name[one]}' as in"
	refusal "$line train.csv" 'format = csv' 'train = train.csv' 'test = moved.csv' \
		'label = species'
	for rest in "falcon-work --eval $state/model.safetensors" \
		'falcon-work --exec true --try' "falcon-ps -K $keys/keyring -l unix:sock"; do
		i=0
		$rest flower.job >out 2>err || i=$?
		same "status of $rest ($(<err))" "$i" 2
		same "what $rest says" "$(<err)" "${rest%% *}: $line train.csv"
	done
	refusal "$line train.csv" 'format = csv' 'train = train.csv, moved.csv' \
		'test = test.csv' 'label = species'
	# Without the training set a test set is what it says, and one in itself.
	rm train.csv
	job_of 'format = csv' 'train = train.csv' 'test = test.csv, moved.csv' 'label = species'
	i=0
	falcon-work --eval "$state/model.safetensors" flower.job 2>err || i=$?
	same "status without the training set" "$i" 2
	same "what is said" "$(<err)" "falcon-work: $line test.csv"
}

# A trainer of names and shapes alone, which has the files, too, and fails where it is not
# given what they hold.
for_trainers() {
	local n
	printf '{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}' >header
	n=$(stat -c %s header)
	{
		# shellcheck disable=SC2059 # a byte
		printf "\\$(printf %o "$n")\0\0\0\0\0\0\0"
		cat header
		printf '\0\0\0\077\0\0\0\077\0\0\0\077'
	} >init
	sed -i -e 's/^file = .*/init = init/' -e '/^mean/d' -e '/^std/d' flower.job
	cat >look.py <<-'END'
		import sys
		import falcon_train
		kind, files = sys.argv[1], {True: sys.argv[2], False: sys.argv[3]}
		text = {k: open(v, "rb").read() for k, v in files.items()}
		if sys.argv[4] == "plain":
		    falcon_train.numpy = None
		def gradient(task):
		    flat = [list(v.reshape(-1) if falcon_train.numpy else v) for v in (task.x, task.y)]
		    each = len(flat[0]) // task.count
		    for k, i in enumerate(task.indices if task.id < 1 << 47 else ()):
		        x = flat[0][k * each:(k + 1) * each]
		        if kind == "text":
		            y = flat[1][k * each:(k + 1) * each]
		            assert x + y[-1:] == list(text[task.train][i * each:(i + 1) * each + 1])
		            assert x[1:] == y[:-1]
		        else:
		            row = text[task.train][80 + 6 * i:86 + 6 * i]
		            assert x == [int.from_bytes(row[j:j + 2], "little", signed=True)
		                         for j in (0, 2, 4)]
		    if task.train:
		        task.grads["w"][:] = 0 if falcon_train.numpy else memoryview(b"\0" * 12).cast("f")
		    return 1.0, 0
		falcon_train.serve(gradient, samples=True)
	END
	export PYTHONPATH=$root/share PYTHONDONTWRITEBYTECODE=1
}

@test "text in windows reaches a trainer, each byte beside the next" {
	perl -e 'srand(shift); print map { chr(97 + int rand 26) } 1 .. 3001' "$SEED" >train.txt
	perl -e 'print "a" .. "z" for 1 .. 9' >test.txt
	job_of 'format = text' 'train = train.txt' 'test = test.txt' 'window = 13'
	for_trainers
	serve --set job.epochs=2 --min-workers 2
	work look --exec 'exec /usr/bin/python3 look.py text train.txt test.txt plain'
	work see --exec 'exec /usr/bin/python3 look.py text train.txt test.txt any'
	wait "$ps"
	falcon-stat --audit "$state/trace.jsonl"
	same "samples" "$(jq -s '[.[] | select(.ev == "eval")][0].total' "$state/trace.jsonl")" 17
	same "tasks that failed" "$(cat look.err see.err | grep -c "a task failed")" 0
}

@test "whole numbers reach a trainer as they are" {
	perl -e 'srand(shift);
		for (["train", 200], ["test", 50]) {
			my ($name, $n) = @$_;
			my $h = sprintf "%-69s\n", "{\x27descr\x27: \x27<i2\x27, \x27fortran_order\x27: False, \x27shape\x27: ($n, 3)}";
			open my $f, ">:raw", "$name.w.npy";
			print $f "\x93NUMPY\1\0", pack("v", 70), $h, pack "s<*", map { int(rand 60000) - 30000 } 1 .. 3 * $n;
			close $f;
			$h = sprintf "%-69s\n", "{\x27descr\x27: \x27|u1\x27, \x27fortran_order\x27: False, \x27shape\x27: ($n,)}";
			open $f, ">:raw", "$name.l.npy";
			print $f "\x93NUMPY\1\0", pack("v", 70), $h, pack "C*", map { int rand 9 } 1 .. $n;
			close $f;
		}' "$SEED"
	job_of 'format = npy' 'train = train.w.npy' 'train-labels = train.l.npy' \
		'test = test.w.npy' 'test-labels = test.l.npy'
	for_trainers
	serve --set job.epochs=2 --min-workers 2
	work look --exec 'exec /usr/bin/python3 look.py i2 train.w.npy test.w.npy plain'
	work see --exec 'exec /usr/bin/python3 look.py i2 train.w.npy test.w.npy any'
	wait "$ps"
	falcon-stat --audit "$state/trace.jsonl"
	same "tasks that failed" "$(cat look.err see.err | grep -c "a task failed")" 0
}

@test "records of CIFAR train a net" {
	perl -e 'srand(shift);
		for my $file ("one.bin", "two.bin") {
			open my $f, ">:raw", $file;
			print $f pack "C*", $_, map { 20 * $_[0] + int rand 60 } 1 .. 3072
				for map { int rand 10 } 1 .. 20;
			close $f;
		}' "$SEED"
	job_of 'format = cifar10' 'train = one.bin,two.bin' 'test = two.bin'
	sed -i -e '/^mean/d' -e '/^std/d' flower.job
	printf 'input 3 32 32\nconv 4 kernel=5 stride=4\nrelu\nflatten\ndense 10\n' >flower.model
	serve --set job.epochs=2
	work alone --lanes 2
	wait "$ps"
	same "samples" "$(jq -s '[.[] | select(.ev == "eval")][0].total' "$state/trace.jsonl")" 20
}

# by_index LINE...: a job without data, and a trainer that has its own: `python3 own.py
# TRAIN TEST DIGIT`, the hash being that digit 64 times.
by_index() {
	job_of 'format = index' 'samples = 120' 'test-samples = 33' "$@"
	for_trainers
	cat >own.py <<-'END'
		import sys
		import falcon_train
		def gradient(task):
		    assert max(task.indices) < (120 if task.train else 33)
		    if task.train:
		        for k in range(3):
		            task.grads["w"][k] = sum((7 * i + k) % 11 - 5 for i in task.indices) / 8
		    return 1.0 * task.count, 1
		train, test, digit = sys.argv[1:]
		falcon_train.serve(gradient, has={"train": int(train), "test": int(test),
		                            "data": 64 * digit})
	END
	own='exec /usr/bin/python3 own.py'
	PYTHONPATH=$root/tests/hostile/bare:$PYTHONPATH
}

# hash DIGIT: the whole of it.
hash() {
	printf "$1%.0s" $(seq 64)
}

@test "data by index: trainers have them, one worker and three, one model" {
	by_index "hash = $(hash a)"
	falcon-work --exec "$own 120 33 a" --try flower.job >try || :
	has "$(<try)" "3 tasks, each twice: same bits"
	serve
	work alone --exec "$own 120 33 a"
	judge index
	same "test samples" "$(jq -s '[.[] | select(.ev == "eval")][-1].total' "$state/trace.jsonl")" 33
	again
	serve --min-workers 3
	work a --exec "$own 120 33 a"
	work b --exec "$own 120 33 a" --emulate rate=2000,speed=0.5
	work c --exec "$own 120 33 a" --emulate rate=2000,speed=0.3
	judge index
}

@test "data by index: other counts and hashes than the job's are refused, both values told" {
	by_index "hash = $(hash a)"
	serve
	work many --exec "$own 121 33 a"
	ended "$pid" many 1
	has "$(<many.err)" "the trainer has 121 training samples, the job 120"
	work few --exec "$own 120 32 a"
	ended "$pid" few 1
	has "$(<few.err)" "the trainer has 32 test samples, the job 33"
	work other --exec "$own 120 33 b"
	ended "$pid" other 1
	has "$(<other.err)" "the trainer has the data $(hash b), the job's are $(hash a)"
	falcon-work --exec "$own 120 33 b" --try flower.job >try || same "status" "$?" 1
	has "$(<try)" "no: the trainer has the data $(hash b), the job's are $(hash a)"
	# Whom the job asks for no hash may ask for no samples, either.
	work asks --exec 'exec /usr/bin/python3 look.py i2 init init plain'
	ended "$pid" asks 1
	has "$(<asks.err)" "the trainer asks for samples, but data.format = index has none"
	work alone --exec "$own 120 33 a"
	wait "$ps"
}

# of_key NAME DIGIT: a worker of this key, whose trainer has such data.
of_key() {
	start "$1" falcon-work -k "$keys/$1.key" -n "$1" --exec "$own 120 33 $2" "$ready"
}

@test "data by index: who has other data than most keys is sent away, though it came first" {
	by_index
	local name
	keys=$BATS_TEST_TMPDIR/several
	falcon-key init "$keys"
	for name in one two three; do
		falcon-key add -K "$keys/keyring" "$name"
	done
	serve --min-workers 2
	of_key one b
	local one=$pid
	soon "one is here" grep -q 'one joined' ps.err
	of_key two a
	soon "two is told" grep -q "its trainer has the data $(hash a), that of others has $(hash b)" two.err
	of_key three a
	ended "$one" one 1
	has "$(<one.err)" "its trainer has the data $(hash b), that of others has $(hash a)"
	wait "$ps"
	falcon-stat --audit "$state/trace.jsonl"
	grep -q 'two joined' ps.err
	same "work of the first" "$(jq -r 'select(.ev == "clock" and .worker == "one")' "$state/trace.jsonl")" ""
}

# no_work NAME DIGIT OTHERS: a trainer with such data is sent away, as these have others.
no_work() {
	work "$1" --exec "$own 120 33 $2"
	ended "$pid" "$1" 77
	has "$(<"$1.err")" "its trainer has the data $(hash "$2"), $3"
}

@test "data by index: a job that has begun, or goes on, keeps the data that trainers had" {
	by_index
	job=(--set job.epochs=20 --set state.clocks=1 "${job[@]}")
	at_unix
	work a --exec "$own 120 33 a" --emulate rate=1000
	soon "some clocks" lines 3 '"ev":"update"'
	kill -TERM "$pid"
	wait "$pid" || :
	soon "a is gone" grep -q 'a left' ps.err
	no_work other b "that of others has $(hash a)"
	killed
	at_unix
	has "$(<ps.err)" ": resumed at clock "
	no_work again b "the job's are $(hash a)"
	killed
	at_unix --accept-change data
	has "$(<ps.err)" " with other files: data"
	work b --exec "$own 120 33 b"
	ended "$ps" ps
	has "$(falcon-stat --audit "$state")" "audit: 2 parts, each with other files: the last from clock "
	# A hash that the job names is one of its files.
	job=(--set "data.hash=$(hash a)" "${job[@]}")
	run timeout 20 falcon-ps -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	same "status ($output)" "$status" 2
	has "$output" "data of trainers: data.hash is $(hash a), but $state was begun with none: --accept-change data"
}

# labelled TARGET: 300 samples in each format, of i and another number, and what they are
# labelled with: 3 i, which are 898 classes, or the value 1.5 i - 100.
labelled() {
	cat >labelled.py <<-'END'
		import struct
		import sys

		rows = [(i, i % 7) for i in range(300)]
		value = sys.argv[1] == "value"
		y = [1.5 * i - 100 if value else 3 * i for i, _ in rows]
		x = struct.pack("<600f", *(v for row in rows for v in row))

		def safetensors(file, **tensors):
		    head, data = [], b""
		    for name, (dtype, shape, raw) in tensors.items():
		        head.append('"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (
		            name, dtype, shape, len(data), len(data) + len(raw)))
		        data += raw
		    text = ("{%s}" % ",".join(head)).encode()
		    open(file, "wb").write(struct.pack("<Q", len(text)) + text + data)

		def npy(file, descr, shape, data):
		    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n" % (descr, shape)
		    open(file, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) +
		                           text.encode() + data)

		kind, raw = ("<f8", struct.pack("<300d", *y)) if value else \
		    ("<i2", struct.pack("<300h", *y))
		npy("many.x.npy", "<f4", "300, 2", x)
		npy("many.y.npy", kind, "300,", raw)
		safetensors("many.safetensors", x=("F32", [300, 2], x),
		            y=("F64" if value else "I16", [300], raw))
		safetensors("init.safetensors", w=("F32", [2], bytes(8)))
		with open("many.csv", "w") as f:
		    print("a,y,b", *("%d,%s,%d" % (a, label, b) for (a, b), label in zip(rows, y)),
		          sep="\n", file=f)
	END
	# Its loss is how far labels are from what they are to be.
	cat >trainer.py <<-'END'
		import sys

		import falcon_train

		def gradient(task):
		    off = [abs(y - (1.5 * x - 100 if sys.argv[1] == "value" else 3 * x))
		           for x, y in zip(task.x[::2], task.y)]
		    if task.train:
		        task.grads["w"][0] = sum(off)
		        task.grads["w"][1] = task.count
		    return sum(off), off.count(0)

		falcon_train.serve(gradient, samples=True)
	END
	/usr/bin/python3 labelled.py "$1"
}

# of_format FORMAT: what the data section says of them.
of_format() {
	case $1 in
	npy) printf '%s\n' {train,test}=many.x.npy {train,test}-labels=many.y.npy ;;
	csv) printf '%s\n' train=many.csv test=many.csv label=y ;;
	safetensors) printf '%s\n' {train,test}=many.safetensors features=x label=y ;;
	esac
}

@test "many classes, and values to be predicted, reach a trainer" {
	export PYTHONPATH=$root/tests/hostile/bare:$root/share PYTHONDONTWRITEBYTECODE=1
	local target format
	for target in class value; do
		for format in npy csv safetensors; do
			labelled "$target"
			mapfile -t lines < <(of_format "$format")
			job_of "format = $format" "target = $target" "${lines[@]}"
			sed -i 's/^file = .*/init = init.safetensors/; /^mean/d; /^std/d' flower.job
			again
			serve --min-workers 2 --set job.epochs=2
			for name in one two; do
				work "$name" --exec "exec /usr/bin/python3 trainer.py $target"
			done
			wait "$ps"
			falcon-stat --audit "$state/trace.jsonl"
			same "of $format, $target: right, loss" "$(jq -sc '[.[] | select(.ev == "eval")][-1] |
				[.right, .total, .loss]' "$state/trace.jsonl")" "[300,300,0]"
		done
	done
	# The built-in nets have nothing for values.
	sed 's/^init = .*/file = flower.model/' flower.job >net.job
	run falcon-ps --check net.job
	same "status" "$status" 2
	has "$output" "data.target: 'value' is only for a job without model.file: its layers classify"
	sed '/^target/s/$/\npartition = label-skew\nparts = 2/' flower.job >skew.job
	run falcon-ps --check skew.job
	same "status" "$status" 2
	has "$output" "data.partition: 'label-skew' needs labels that are classes"
	sed '/^target/d' flower.job >class.job
	run falcon-ps --check class.job
	same "status" "$status" 2
	has "$output" "tensor 'y': labels are whole numbers, not F32; or is data.target = value meant?"
}

@test "files of Debian packages: a table, an array, a text" {
	local data=${SAMPLE_DATA:-/usr/share/matplotlib/mpl-data/sample_data}
	local table=$data/percent_bachelors_degrees_women_usa.csv
	local array=$data/axes_grid/bivariate_normal.npy text=/usr/share/common-licenses/GPL-3
	[ -e "$table" ] || skip "python-matplotlib-data is not installed"
	# One column is to be predicted; the loss is its sum.
	job_of 'format = csv' 'target = value' "train = $table" "test = $table" \
		'label = Computer Science'
	for_trainers
	cat >sum.py <<-'END'
		import falcon_train

		def gradient(task):
		    for i in range(3 if task.train else 0):
		        task.grads["w"][i] = 0
		    return sum(map(float, task.y)), task.count

		falcon_train.serve(gradient, samples=True)
	END
	serve --set job.epochs=1 --set batch.size=21
	work sum --exec 'exec /usr/bin/python3 sum.py'
	wait "$ps"
	same "the column" "$(jq -sr '[.[] | select(.ev == "eval")][-1] |
		"\(.total) \(.loss * 1000 | round)"' "$state/trace.jsonl")" \
		"$(awk -F, 'NR > 1 { n++; sum += $8 } END { printf "%d %.0f", n, 1000 * sum / n }' "$table")"

	# A net that tells whether the sum of a row is above 0.
	printf 'input 15\ndense 2\n' >flower.model
	job_of 'format = npy' 'train = a' 'train-labels = a' 'test = a' 'test-labels = a'
	sed -i '/^mean/d; /^std/d' flower.job
	perl -e 'my $h = q({"0.weight":{"dtype":"F32","shape":[2,15],"data_offsets":[0,120]},) .
			q("0.bias":{"dtype":"F32","shape":[2],"data_offsets":[120,128]}});
		print pack("Q<", length $h), $h, pack("f<32", (0) x 15, (1) x 15, 0, 0)' >sign
	falcon-work --predict sign flower.job "$array" | cut -d " " -f 1 >said
	same "signs" "$(xargs <said)" "$(perl -e 'undef $/; my @v = unpack "x80d<*", <>;
		while (my @row = splice @v, 0, 15) {
			my $sum = 0;
			$sum += $_ for @row;
			print $sum > 0 ? "1 " : "0 ";
		}' "$array" | xargs)"

	job_of 'format = text' "train = $text" "test = $text" 'window = 64'
	for_trainers
	again
	serve --set job.epochs=1
	work look --exec "exec /usr/bin/python3 look.py text $text $text any"
	wait "$ps"
	same "windows" "$(jq -s '[.[] | select(.ev == "eval")][0].total' "$state/trace.jsonl")" \
		$((($(stat -c %s "$text") - 1) / 64))
	same "tasks that failed" "$(cat look.err sum.err | grep -c "a task failed")" 0
}
