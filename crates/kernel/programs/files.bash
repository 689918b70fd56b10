# Features that bash has beyond a plain shell, over the same files and pipes: the same
# output on the reference kernel as on Linux. Run in an empty directory, with
# busybox's commands in PATH.
set -u
part() { echo "== $1"; }

part "arrays and expansions"
declare -A size=([one]=1 [three]=3)
for key in one three; do echo "$key ${size[$key]}"; done
list=(c a b)
echo "${#list[@]} ${list[@]:1} ${list[*]/a/x}"
path=/usr/lib/thing.tar.gz
echo "${path##*/} ${path%%.*} ${path^^} ${path//\//_}"
echo {1..5} {a,b}{1,2}
printf '%05d|%-6s|%q\n' 42 ab "a b"
[[ thing-12 =~ ^([a-z]+)-([0-9]+)$ ]] && echo "${BASH_REMATCH[2]} ${BASH_REMATCH[1]}"

part "pipes"
seq 1 5000 | while read -r n; do ((n % 1000)) || echo "$n"; done
false | true | (exit 4); echo "${PIPESTATUS[@]}"
set -o pipefail; false | true || echo "pipefail"; set +o pipefail
mapfile -t lines < <(seq 3 5)
echo "${lines[@]}"
diff <(seq 1 3) <(seq 1 4) | tail -n 1
tee >(wc -l >counted) </proc/self/status >/dev/null; while [ ! -s counted ]; do sleep 0.01; done
[ "$(cat counted)" -gt 20 ] && echo "substitution for writing"
cat <<<"a here-string"
cat <<-END
	tabs go
	END
exec {fd}>kept; echo one >&"$fd"; echo two >&"$fd"; exec {fd}>&-; cat kept
coproc upper { while read -r line; do echo "${line^^}"; done; }
echo shout >&"${upper[1]}"; read -r answer <&"${upper[0]}"; echo "$answer"
exec {upper[1]}>&-; wait "$upper_PID"; echo "coproc ended: $?"

part "jobs"
for n in 3 1 2; do (exit "$n") & pids[n]=$!; done
for n in 1 2 3; do wait "${pids[n]}"; echo "$n: $?"; done
sleep 100 & kill -KILL $!; wait $! 2>/dev/null; echo "killed: $?"
(trap 'echo "caught TERM"; exit 3' TERM; kill -TERM "$BASHPID"; echo "not here"); echo "$?"
trap 'echo "USR1 in the parent"' USR1; (kill -USR1 $$); wait
f() { local n=$1; ((n)) && f $((n - 1)); echo -n "$n "; }; f 30; echo
(ulimit -n 20; ulimit -n)
read -r -t 0.05 nothing < <(sleep 1) || echo "timed out: $(($? > 128))"
echo "$(for i in {1..100}; do echo "$(echo "$i")"; done | tail -n 1)"

part "files"
mkdir -p d/e; touch d/{x,y}.c d/e/z.c
shopt -s globstar nullglob; echo d/**/*.c; echo none*
cd d/e && pwd -P | grep -o 'd/e$'; cd - >/dev/null
[[ d/x.c -nt nowhere && -d d/e && ! -L d ]] && echo "tests"
umask 077; touch secret; stat -c %a secret; umask 022
while IFS=: read -r user _ id _; do [ "$id" = 0 ] && echo "$user"; done </etc/passwd
printf 'b 2\na 1\n' | sort | while read -r k v; do printf '%s=%s;' "$k" "$v"; done; echo
find . -name '*.c' -exec sh -c 'echo "${1##*/}"' _ {} \; | sort
tar cf - d | tar tf - | wc -l
head -c 200000 /dev/zero | gzip -9 | gunzip | wc -c
echo "$BASH_SUBSHELL $(echo "$BASH_SUBSHELL")"
cat "/proc/$$/comm"
