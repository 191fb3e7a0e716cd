# Of predictions, one a trace: each pair of what was predicted from one trace and measured
# in another of the same pattern and seed; and figures over them.
def median: sort | if length == 0 then null else .[length / 2 | floor] end;
def worst: if length == 0 then null else max end;
def bounded: ["bsp", "epsp", "epsp:2", "ssp:3", "wbsp"];
def bounds: ["p1:4", "p1c", "p2", "p4"];

# The names that --what-if prints are the shortest ones: the order is that of the list.
(map({key: "\(.pattern) \(.from) \(.seed)", value: .measured_s}) | from_entries) as $measured
| (map(.from) | unique) as $known
| [.[] | . as $t | .schemes[] | select(.epoch_s != null)
	| . as $s
	| ($known[] | select(. == $s.scheme)) as $to
	| $measured["\($t.pattern) \($to) \($t.seed)"] as $m
	| select($m != null and $m > 0)
	| {pattern: $t.pattern, seed: $t.seed, from: $t.from, to: $to, predicted: .epoch_s,
		measured: $m, error: (.epoch_s / $m - 1)}]
| (map(select(.from != .to))) as $other
| ($other | map(select((.from | IN(bounded[])) and (.to | IN(bounded[])) and
	(.pattern | IN(bounds[]))))) as $core
| {pairs: ., figures: {
	"backtest.median_error": (map(select(.from == .to) | .error | fabs) | median),
	"backtest.worst_error": (map(select(.from == .to) | .error | fabs) | worst),
	"other.median_error": ($other | map(.error | fabs) | median),
	"other.worst_error": ($other | map(.error | fabs) | worst),
	"bounded.median_error": ($core | map(.error | fabs) | median),
	"bounded.worst_error": ($core | map(.error | fabs) | worst)}}
