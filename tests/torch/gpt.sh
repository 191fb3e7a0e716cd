#!/bin/sh
# tests/torch/gpt.sh: the character GPT of examples/, AdamW and clipping on the server, from
# five seeds.  Its held-out loss is that of plain PyTorch with sums in float32, on the same
# batches and with as many updates: within 1 %.  GPT_SEEDS names other seeds.
# FALCON_BIN names the folder of the programs.
set -eu

bin=${FALCON_BIN:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
share=$here/../../share
gpt=$here/../../examples/exec/gpt
export PYTHONPATH="$share" PYTHONDONTWRITEBYTECODE=1 SEED

dir=$(mktemp -d)
# shellcheck source=share/crew
. "$share/crew"
clean_up() {
	dismiss
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

"$bin/falcon-key" init "$dir/keys"
"$share/data/fetch" kjv "$dir/kjv"
text=$dir/kjv/kjv.txt

for SEED in ${GPT_SEEDS:-1 2 3 4 5}; do
	at=$dir/$SEED
	mkdir "$at"
	cp "${GPT_JOB:-$gpt.job}" "$at/gpt.job"
	/usr/bin/python3 "$gpt.py" "$text" "$at/init.safetensors"
	serve ps "$bin/falcon-ps" "$at/gpt.job" --set job.seed="$SEED" \
		--keyring "$dir/keys/keyring" --listen 127.0.0.1:0 --state "$at/state" \
		--exit-when-done --json >"$at/falcon.json" 2>"$dir/ps.err"
	member work "$bin/falcon-work" "$address" --key "$dir/keys/work.key" --exec \
		"exec /usr/bin/python3 $here/plain.py record $at/record $gpt.py $text"
	done_by ps work
	"$here/plain.py" train "$at/record" "$at/state" "$gpt.py" "$text" >"$at/plain.json"
	jq -es '.[0].test_loss as $falcon | .[1].test_loss as $plain |
		"seed '"$SEED"': held-out loss \($falcon), in plain PyTorch \($plain)",
		$plain < 2.7 and ($falcon / $plain - 1 | fabs) <= 0.01' \
		"$at/falcon.json" "$at/plain.json"
done
