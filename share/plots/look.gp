# look.gp: what all pictures share.  Each script sets `numbers`, the file that falcon-proj
# --tsv has written, and `format`, svg or png; the picture goes to standard output.
set encoding utf8
set datafile separator tab
wide = 900
# Colours that the colour-blind tell apart (Okabe and Ito 2008).
black = 0x000000; orange = 0xE69F00; sky = 0x56B4E9; green = 0x009E73
blue = 0x0072B2; vermilion = 0xD55E00; purple = 0xCC79A7; grey = 0x777777
# Fonts in pixels; pngcairo counts points, 3/4 of them.
look = "noenhanced background rgb '#FFFFFF' font 'sans-serif,16'"
terminal = format eq "png" ? "pngcairo fontscale 0.75 ".look : "svg ".look
set border lc rgb grey
set tics textcolor rgb black nomirror scale 0.5
