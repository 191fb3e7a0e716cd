# gnuplot -c bands.gp NUMBERS svg|png [SECONDS]: a band for each worker, along the time of its
# clocks; the time axis goes from 0 to so many seconds, so that pictures of several runs compare.
numbers = ARG1
format = ARG2
load ARG0[:strlen(ARG0) - strlen("bands.gp")]."look.gp"

stats numbers index 0 using (title = strcol(1)." (".strcol(2).")", unit = strcol(3), \
	first = column(4), last = column(5)) nooutput
stats numbers index 1 using 1 nooutput
workers = STATS_records
rows = workers < 64 ? workers : 64 # the stragglers are the first
stats numbers index 1 every ::::rows-1 using (strlen(strcol(3))) nooutput
name = STATS_max < 16 ? STATS_max + 2 : 18 # characters
zero = ARGC > 2 ? first : 0
last = ARGC > 2 ? ARG3 + 0 : last
first = first - zero
updates = 0
stats numbers index 3 using (updates = updates + 1) nooutput
pitch = rows <= 8 ? 44 : rows <= 16 ? 32 : rows <= 40 ? 20 : 17
high = 240 + pitch * rows
small = pitch < 20 ? ",14" : ",16"
left = 20 + 9.0 * (name > 7 ? name : 7)
per_s = (wide - 20 - left) / (last - first)
set terminal @terminal size wide,high
set lmargin at screen left / wide
set rmargin at screen 1 - 20.0 / wide
set tmargin at screen 1 - 114.0 / high
set bmargin at screen 126.0 / high

cut(s, n) = strlen(s) > n ? s[1:n-1]."…" : s
set label 1 title.": where the time of ".(rows < workers ? sprintf("%d of ", rows) : "").\
	sprintf("%d worker%s went", workers, workers == 1 ? "" : "s") \
	at screen 0.5, screen 1 - 24.0 / high center font ",18"
set label 2 "time (s)" at screen 0.5, screen 70.0 / high center
set label 3 "The parts are sums of each ".unit.", drawn in the order of the legend.  ".\
	(updates <= 24 ? "Dashed: a new version." : "Ticks: new versions.") \
	at screen 12.0 / wide, screen 42.0 / high left font ",14"
set label 4 "+ −: tasks moved to it, away from it; ×: clones it ran (where there is room).  ".\
	"*: a straggler 3 times in a row." at screen 12.0 / wide, screen 20.0 / high left font ",14"
set label 5 unit at screen (left - 8) / wide, screen 1 - 94.0 / high right font ",14"
set key at screen left / wide, screen 1 - 56.0 / high left center maxrows 1 reverse Left
set xrange [first:last]
set yrange [rows - 0.5:-0.5]
set border 1
set xtics out
set ytics scale 0 textcolor rgb black offset 0.5 font small

begin(n) = column(2) - zero + (n > 0 ? column(3) : 0) + (n > 1 ? column(4) : 0) + (n > 2 ? column(5) : 0)
from(n) = begin(n) > first ? begin(n) : first
to(n) = begin(n) + column(3 + n)
row(n) = column(1) < rows && to(n) > from(n) ? column(1) : NaN
# The moved and cloned tasks stand on the light ground of compute, or of wait where that is
# longer, if there is room: the signs are wider than most characters.
ground = 1
moved = ""
tasks(unused) = (ground = column(6) > column(4) ? 3 : 1, moved = \
	(column(7) > 0 ? sprintf("+%d", column(7)) : "").(column(9) > 0 ? sprintf("×%d", column(9)) : "").\
	(column(8) > 0 ? sprintf("−%d", column(8)) : ""), \
	strlen(moved) * 10 > (to(ground) - from(ground)) * per_s ? "" : moved)
# Numbers of versions stand where each was made; of clocks, in their midst, where there is room.
taken = first
since = first
place(t) = (middle = unit eq "clock" ? (since + t) / 2 : t, since = t, middle)
number(n) = (half = strlen(n) * 4.5 / per_s, \
	middle - half < taken || middle + half > last ? "" : (taken = middle + half + 9 / per_s, n))
set x2range [first:last]
set x2tics scale 0 font ",14" offset 0,-0.3
push = "with boxxyerror fs solid 1 noborder fc rgb black"
pull = "with boxxyerror fs solid 1 noborder fc rgb vermilion"
wait = "with boxxyerror fs solid 1 border lc rgb '#AAAAAA' fc rgb '#FFFFFF'"
compute = "with boxxyerror fs solid 1 border lc rgb '#FFFFFF' fc rgb sky"
band = "using (from(part)):(row(part)):(from(part)):(to(part)):(row(part)-0.4):(row(part)+0.4)"
plot numbers index 1 every ::::rows-1 using (first):1:ytic(cut(strcol(3), 16).(column(2) > 0 ? " *" : "")) \
		with dots lc rgb "#FFFFFF" notitle, \
	part = 3, numbers index 2 @band @wait notitle, \
	part = 1, numbers index 2 @band @compute notitle, \
	part = 2, numbers index 2 @band @push notitle, \
	part = 0, numbers index 2 @band @pull notitle, \
	keyentry @pull title "pull", keyentry @compute title "compute", \
	keyentry @push title "push", keyentry @wait title "wait", \
	numbers index 2 using (tasks(0), (from(ground) + to(ground)) / 2):(row(ground)):(tasks(0)) \
		with labels font ",14" notitle, \
	numbers index 3 using ($1 - zero):(updates <= 24 ? rows - 0.5 : -0.4):(0):(updates <= 24 ? -rows : -0.1) \
		with vectors nohead dt 3 lc rgb black notitle, \
	numbers index 3 using (place(column(1) - zero)):(-0.5):x2tic(number(strcol(2))) axes x2y1 \
		with dots lc rgb "#FFFFFF" notitle
