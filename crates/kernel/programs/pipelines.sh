# pipelines.sh NUMBER: two shells at once make so many pipelines together. A shell goes on when the last process of
# a pipeline has ended: what that writes comes in order, and the file that it makes is there.
work() {
    n=0
    while test $n -lt $2; do
        echo $n | head -c 9 | tee -a order.$1 >made.$1.$n
        rm made.$1.$n || echo "$1: no file of pipeline $n"
        n=$((n + 1))
    done
}

work a $(($1 / 2)) &
work b $(($1 / 2)) &
wait
for shell in a b; do
    seq 0 $(($1 / 2 - 1)) | cmp - order.$shell && echo "$shell: in order"
done
