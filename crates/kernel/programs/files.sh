# A session with files, for the shell of busybox and for bash: what it prints is
# the same on the reference kernel as on Linux. Run in an empty directory, with
# nothing but busybox's commands in PATH.
set -u
umask 022
part() { echo "== $1"; }

part "pipes and subshells"
seq 1 1000 | grep 7 | sort -rn | head -n 5
(cd / && pwd)
echo "$(echo one; (echo two; exit 3); echo $?)" | tr a-z A-Z
seq 1 20000 | while read -r n; do
    case $n in *999) echo "$n" ;; esac
done | tail -n 3
false | true && echo "the last one counts"
{ echo out; echo err >&2; } 2>&1 | sort

part "here-documents and redirection"
name=world
cat <<END
hello $name
  $((6 * 7))
END
cat <<'END' >quoted
$name stays
END
cat quoted
echo more >>quoted
wc -l <quoted
exec 3<quoted
read -r first <&3
read -r second <&3
exec 3<&-
echo "$second after $first"
echo x >file 2>&1
(set -C; echo y >file) 2>/dev/null || echo "not clobbered"

part "files and directories"
mkdir -p tree/a/b tree/c
for n in 1 2 3 4 5; do echo "content $n" >"tree/a/f$n"; done
ln tree/a/f1 tree/c/hard
ln -s ../a/f2 tree/c/soft
ln -s nowhere tree/c/dangling
cat tree/c/hard tree/c/soft
cat tree/c/dangling 2>/dev/null || echo "dangles"
find tree | sort
find tree -type f -name 'f[2-4]' | sort | xargs grep -c content
find tree -type l | sort | while read -r l; do echo "$l -> $(readlink "$l")"; done
stat -c '%n %s %h %a' tree/a/f1 tree/c/soft
chmod 640 tree/a/f3 && stat -c '%a' tree/a/f3
mv tree/a/f4 tree/b4 && ls tree tree/a
cp -r tree copy && rm tree/c/hard && cmp tree/a/f1 copy/c/hard && echo "same"
rmdir tree/a 2>/dev/null || echo "not empty"
[ -L tree/c/soft ] && [ -d tree ] && [ ! -e tree/c/dangling ] && echo "tests"
touch -d '2020-01-02 03:04:05' old && touch new && [ old -ot new ] && echo "older"
ls -l new | cut -c1-10
truncate -s 10000 sparse && wc -c <sparse
dd if=/dev/zero bs=1k count=300 2>/dev/null | md5sum
rm -r copy && ls

part "text"
printf 'pear 3\napple 10\nfig 7\n' >fruit
sort fruit
sort -k2 -n fruit | sed -n 's/^\([a-z]*\) \(.*\)$/\2:\1/p'
awk '{ s += $2 } END { print NR, s }' fruit
awk 'BEGIN { while (("seq 3" | getline n) > 0) print n * n; system("echo from awk") }'
cut -d' ' -f1 fruit | tr '\n' ',' && echo
uniq -c <<END | sed 's/^ *//'
a
a
b
END
diff fruit quoted | head -n 3
seq 5000 | sort -r | sort -n | md5sum

part "archives"
tar cf all.tar tree fruit && tar tf all.tar | sort
mkdir out && tar xf all.tar -C out && diff -r tree out/tree 2>/dev/null && echo "unpacked alike"
gzip -c all.tar >all.tar.gz && gunzip -c all.tar.gz | cmp - all.tar && echo "gzip"
tar czf - tree | tar tzf - | wc -l
seq 30000 | gzip | gzip -d | tail -n 1

part "named pipes and background jobs"
mkfifo fifo
[ -p fifo ] && echo "is a pipe"
cat fifo &
echo "through the pipe" >fifo
wait
(sleep 0.2; echo late) &
echo early
wait $!
for n in 1 2 3; do (exit "$n") & wait $! || echo "ended with $?"; done
seq 1 100000 | sort -n | tail -n 1
yes | head -n 2
sleep 100 &
kill $! && wait $! || echo "killed: $?"

part "traps"
trap 'echo "got USR1"' USR1
kill -USR1 $$
trap 'echo "and EXIT in a subshell"' EXIT
(trap 'echo inner' EXIT; true)
trap - EXIT
sh -c 'trap "echo term; exit 9" TERM; kill -TERM $$; echo not here'
echo "status $?"

part "/proc"
read -r pid rest </proc/self/stat && [ "$pid" -gt 0 ] && echo "stat"
cat /proc/self/cmdline | tr '\0' ' ' && echo
grep -c . /proc/self/maps >/dev/null && echo "maps"
exec 7<file
ls -l /proc/self/fd | grep -o ' 7 -> .*/file$' | sed 's,/.*/,,'
exec 7<&-
[ "$(readlink /proc/self/cwd)" = "$(pwd -P)" ] && echo "cwd"
[ -d "/proc/$$" ] && [ "$(sed -n 's/^Pid:.//p' "/proc/$$/status")" = $$ ] && echo "pid"
grep -q '^MemTotal: *[0-9]* kB$' /proc/meminfo && echo "meminfo"
ps -o pid,comm | grep -q "$$" && echo "ps"
MARK=found cat /proc/self/environ | tr '\0' '\n' | grep MARK
echo 300 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj
df / >/dev/null && echo "df"
