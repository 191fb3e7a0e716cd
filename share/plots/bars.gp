# gnuplot -c bars.gp NUMBERS svg|png: seconds per epoch under each scheme, as bars.
numbers = ARG1
format = ARG2
load ARG0[:strlen(ARG0) - strlen("bars.gp")]."look.gp"

name(unused) = strcol(2).(column(6) > 0 ? " (ran)" : "")
stats numbers using (strlen(name(0))) nooutput
rows = STATS_records
left = 20 + 9.0 * STATS_max
most = 0
measured = 0
stats numbers using (most = column(3) > most ? column(3) : most, \
	most = column(4) > most ? column(4) : most, measured = measured + (column(4) > 0)) nooutput
high = 150 + 44 * rows
set terminal @terminal size wide,high
set lmargin at screen left / wide
set rmargin at screen 1 - 20.0 / wide
set tmargin at screen 1 - 86.0 / high
set bmargin at screen 64.0 / high
set label 1 "Seconds per epoch under each scheme" at screen 0.5, screen 1 - 24.0 / high \
	center font ",18"
set label 2 "time per epoch (s)" at screen 0.5, screen 14.0 / high center
set key at screen left / wide, screen 1 - 56.0 / high left center maxrows 1 reverse Left
# The text beside the longest bar takes 330 pixels.
room = wide - 20 - left
set xrange [0:most * room / (room - 330)]
set yrange [rows - 0.5:-0.5]
set border 1
set xtics out
set ytics scale 0 textcolor rgb black offset 0.5

seconds(s) = sprintf(s >= 100 ? "%.0f s" : s >= 10 ? "%.1f s" : s >= 1 ? "%.2f s" : \
	s >= 0.1 ? "%.3f s" : s >= 0.01 ? "%.4f s" : "%.6f s", s)
two(unused) = column(4) > 0
plot numbers using (0):1:ytic(name(0)) with dots lc rgb "#FFFFFF" notitle, \
	"" using 3:1:(0):3:($1 - (two(0) ? 0.44 : 0.34)):($1 + (two(0) ? 0 : 0.34)) with boxxyerror \
		fs solid 1 border lc rgb black fc rgb sky title "predicted", \
	for [i = 1:measured > 0] "" using (two(0) ? $4 : NaN):1:(0):4:1:($1 + 0.44) with boxxyerror \
		fs pattern 5 border lc rgb black fc rgb vermilion title "measured", \
	"" using 3:($1 - (two(0) ? 0.22 : 0)):(seconds($3).sprintf(", %.0f % compute", 100 * $5).\
		($7 > 0 ? ", another model" : "")) with labels left offset 0.7 font ",14" notitle, \
	for [i = 1:measured > 0] "" using (two(0) ? $4 : NaN):($1 + 0.22):("measured ".seconds($4).\
		sprintf(", error %+.1f %", 100 * ($3 / $4 - 1))) with labels left offset 0.7 \
		font ",14" notitle
