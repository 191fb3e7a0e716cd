# shards.jq: what the trace of one run of bench_shards.sh says, as an object of numbers.
# $shards; $rate: bytes a second of a line, $lines: of all together in the end;
# $late: milliseconds by which what one shard sends comes later; $onset: clocks that were
# over when that befell it, 0: from the begin; $settles: blocks move; $static: the clock then
# if none do, in ms.

def median: sort | .[(length - 1) / 2 | floor];
def owner: [.runs[] as $r | range($r[2]) | $r[0]];

map(select(.ev == "update").t) as $t |
(map(select(.ev == "job").params) | .[0]) as $params |
map(select(.ev == "place")) as $maps |
map(select(.ev == "place" and .rule == "moved")) as $moves |
# Number i is from the version that clock i makes to the next.
[range(1; $t | length) as $v | ($t[$v] - $t[$v - 1]) * 1000] as $clock |
($clock | length) as $n |
def over_by($at): [$t[] | select(. < $at)] | length;
# Of what versions really are: a parameter is packed.
([.[] | select(.ev == "shard").tx] | add / ($t | length)) as $sent |
def bound($lines; $late): $sent / $lines * 1000 + $late / $shards;
bound($lines; $late) as $bound |

($clock[(if $settles or $onset > 0 then 2 * $n / 3 | floor else 2 end):] | median) as $settled |
($maps[-1].runs | map(.[2])) as $blocks |
{
	clock: $settled,
	most: (($blocks | max) / ($blocks | add)),
	bound: $bound,
	slower: ($settled / $bound)
} +
if $settles | not then {} else
	([range(1; $maps | length) as $m | [($maps[$m] | owner), ($maps[$m - 1] | owner)] |
		transpose | map(select(.[0] != .[1])) | length] | add // 0) as $moved |
	{
		steps: ($moves | length),
		moved: ($moved / ($blocks | add)),
		bytes: ($moved / ($blocks | add) * $params * 4 / 1000),
		took: ($moves | map(.took * 1000) | if length > 0 then median else 0 end),
		stall: ([$moves[] | over_by(.t) as $v | select($v > 1 and $v < ($t | length)) |
			$clock[$v - 1] - $clock[$v - 2]] | max // 0)
	} + if $onset == 0 then
		{
			first: (if $moves == [] then 0 else over_by($moves[0].t) end),
			# The last clock that is not within a tenth of the end.
			there: ([$clock | to_entries[] | select(.value > 1.1 * $settled) |
				.key + 1 | select(. < $n * 2 / 3)] | max // 0)
		}
	else
		($moves | map(select(.t > $t[$onset - 1]))) as $after |
		# What no line takes is there before and behind.
		($clock[5:$onset - 1] | median) as $before |
		([$before - bound($shards * $rate; 0), 0] | max) as $beside |
		($bound + $beside) as $best |
		([range($onset; $n - 2) | select(($clock[.:. + 3] | median) <=
			$best + 0.1 * ($static - $best))] | .[0]) as $there |
		{
			before: $before,
			gain: (($static - $settled) / ($static - $best))
		} +
		(if $after == [] then {} else { first: (over_by($after[0].t) - $onset) } end) +
		(if $there == null then {} else { there: ($there + 1 - $onset) } end)
	end
end
