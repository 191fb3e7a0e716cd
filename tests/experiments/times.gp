# gnuplot -c times.gp NUMBERS svg|png CAP TITLE: a bar for each scheme.  NUMBERS has row,
# scheme, median, least, most, and whether it was reached and is of epsp.
numbers = ARG1
format = ARG2
load "share/plots/look.gp"

stats numbers using 1 nooutput
rows = STATS_records
high = 130 + 36 * rows
set terminal @terminal size wide,high
set lmargin at screen 0.24
set rmargin at screen 0.97
set tmargin at screen 1 - 56.0 / high
set bmargin at screen 70.0 / high
set label 1 ARG4 at screen 0.5, screen 1 - 24.0 / high center font ",18"
set label 2 "time (s); lines: least to most of the seeds; empty: not within ".ARG3." s" \
	at screen 0.5, screen 16.0 / high center font ",14"
set border 1
set xrange [0:ARG3 * 1.05]
set yrange [rows - 0.5:-0.5]
set ytics out
set key off
plot numbers using (0):1:(0):($6 == 1 ? $3 : 0):($1 - 0.35):($1 + 0.35):($7 == 1 ? orange : sky):ytic(2) \
		with boxxyerror fs solid 1 border lc rgb black fc rgb variable, \
	"" using (0):1:(0):($6 == 1 ? 0 : $3):($1 - 0.35):($1 + 0.35) with boxxyerror fs empty \
		border lc rgb black, \
	"" using 4:1:($5 - $4):(0) with vectors nohead lw 2 lc rgb black
