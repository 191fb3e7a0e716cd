#!/bin/sh
# tests/torch/lora.sh: examples/exec/lora.py.  The job has adapters alone, they adapt the base, and
# they load back; a worker with another base is refused, and a model that is no adapter.
# FALCON_BIN names the folder of the programs.
set -eu

bin=$(cd "${FALCON_BIN:-build/release}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH="$bin:/usr/bin:$PATH" PYTHONPATH="$root/share" PYTHONDONTWRITEBYTECODE=1

# shellcheck source=share/crew
. "$root/share/crew"

cd "$dir"
lora="python3 '$root/examples/exec/lora.py'"
falcon-key init keys
for name in pc2 pc3; do
	falcon-key add -K keys/keyring "$name"
done
serve base falcon-ps -x -K keys/keyring -l 127.0.0.1:0 -s base --set job.epochs=1 \
	"$root/share/jobs/fashion.job" >/dev/null 2>base.err
member base.work falcon-work -k keys/work.key "$address"
done_by base base.work
base=base/model.safetensors
cp "$root/examples/exec/lora.job" .
eval "$lora $base save"
falcon-work --exec "exec $lora $base" --try lora.job >tried
grep "no: " tried && exit 1

serve ps falcon-ps -jx -K keys/keyring -l 127.0.0.1:0 -s run -w 2 --set data.samples=60000 --set job.epochs=3 lora.job \
	>result.json 2>ps.err
grep -q "lora: 3272 parameters in 1 block" ps.err
member one falcon-work -k keys/work.key --exec "exec $lora $base" "$address"
member two falcon-work -k keys/pc2.key --exec "exec $lora $base" "$address"
until [ "$(grep -c " joined " ps.err)" = 2 ]; do sleep 0.2; done
# Another base, by one weight.
head -c -1 "$base" >other
printf '\1' >>other
! falcon-work -k keys/pc3.key --exec "exec $lora other" "$address" 2>other.err || exit 1
grep -q "its trainer has the data .*, that of others has " other.err
done_by ps one two
falcon-stat --audit run
before=$(eval "$lora $base test init.safetensors" 2>&1)
after=$(eval "$lora $base test run/model.safetensors" 2>&1)
right=$(jq '.accuracy * 10000 | round' result.json)
echo "lora: of 10000 negatives the base knows $before, with the adapters $after; falcon-ps says $right"
[ "$after" -ge $((right - 5)) ] && [ "$after" -le $((right + 5)) ] && [ "$after" -gt $((before + 2000)) ]
! eval "$lora $base test $base" 2>no || exit 1
grep -q "ValueError: $base: only there, in the model, or reshaped" no
