trees2Ã
l"
p	 *"
matmul
xx
yw
outa*
add
xa
yp
outs*
tanh
xs
outh
xsx
hsh"
ww*
dpJparentZ!*
mul
xc
yx
outdb
hc