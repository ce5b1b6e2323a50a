"""Command lines for the tests of permission rules. The denied program is called zap.

A test runs the lines of `HIDDEN` and `CODE` in a folder with the program bin/zap, which is also on
PATH, a link bin/zip to it, and the files `script` (it runs zap), `names` (it contains "zap x") and
`Makefile`.
"""

from __future__ import annotations

# Lines that run zap, although a careless rule for `zap *` does not match them.
HIDDEN = r"""
zap x
 zap x
zap	x
z''ap x
z""ap x
'zap' x
"zap" x
\zap x
z\ap x
$'zap' x
$'\x7aap' x
$'\172ap' x
$'\u007aap' x
$"zap" x
bin/zap x
./bin/zap x
$PWD/bin/zap x
bin/../bin/zap x
bin//zap x
bin/za? x
bin/z*p x
bin/[z]ap x
bin/{zap,none} x
{zap,x}
z{a,}p x
{zap,} x
$(echo zap) x
`echo zap` x
"$(echo zap)" x
$(printf '\172ap') x
p=zap; $p x
p=za; ${p}p x
p=xzap; ${p#x} x
p=ZAP; ${p,,} x
p=paz; $(rev <<< $p) x
a=(zap x); "${a[@]}"
set -- zap x; "$@"
${none:-zap} x
${none-zap} x
: ${p:=zap}; $p x
read p <<< zap; $p x
read p < names; $p
mapfile -t l < names; ${l[0]}
for p in zap; do $p x; done
while read -r p; do $p; done < names
true; zap x
true && zap x
false || zap x
true & zap x
true | zap x
zap x | cat
zap x > out
zap x 2>&1
zap x < names
> out zap x
2>/dev/null zap x
< names zap x
(zap x)
{ zap x; }
( ( zap x ) )
if true; then zap x; fi
if zap x; then true; fi
while zap x; do break; done
until zap x; do break; done
for i in 1; do zap x; done
case x in x) zap x;; esac
case $(zap x) in *) ;; esac
select i in 1; do zap x; break; done <<< 1
! zap x
time zap x
time -p zap x
coproc zap x; wait
f() { zap x; }; f
function f { zap x; }; f
f() (zap x); f
echo $(zap x)
echo `zap x`
echo "$(zap x)"
echo "`zap x`"
echo ${p:-$(zap x)}
echo $((1 + $(zap x > out; echo 1)))
cat <(zap x)
cat < <(zap x)
echo x > >(zap x); sleep 0.3
cat <<< $(zap x)
zap x #comment
A=1 zap x
A=1 B=2 zap x
A=$(zap x) true
A[0]=1 zap x
export A=$(zap x)
declare A=$(zap x)
readonly A=$(zap x)
let a=$(zap x)
let 'a[$(zap x)]=1'
[[ -v a[$(zap x)] ]]
test -v 'a[$(zap x)]'
[ -v 'a[$(zap x)]' ]
(( a[$(zap x)] ))
printf -v 'a[$(zap x)]' x
read 'a[$(zap x)]' <<< x
declare 'a[$(zap x)]=1'
echo ${a[$(zap x)]}
echo $[ $(zap x) ]
eval zap x
eval 'za''p x'
eval "$(echo zap x)"
eval $(cat names)
trap 'zap x' EXIT
trap 'zap x' 0
trap 'zap x' DEBUG; true
trap 'zap x' ERR; false
PS4='$(zap x)'; set -x; true
BASH_ENV=script bash -c true
env BASH_ENV=script bash -c true
BASH_ENV=./script bash -c :
ENV=./script sh -i < /dev/null
PROMPT_COMMAND='zap x' bash --norc -i < /dev/null
mapfile -c 1 -C 'zap x' l < names
mapfile -C zap -c 1 l < names
readarray -c 1 -C 'zap x' l < names
complete -C 'zap x' p; compgen -C 'zap x' p
compgen -C 'zap x' p
hash -p bin/zap ls; ls x
hash -p $PWD/bin/zap cat; cat x
exec zap x
exec -a ls zap x
command zap x
command -p bin/zap x
builtin command zap x
builtin eval 'zap x'
env zap x
env -i PATH="$PATH" LOG="$LOG" zap x
env A=1 zap x
env -S 'zap x'
env -S'zap x'
env -Szap x
env -vSzap x
env --split-string=zap x
env --split-string 'zap x'
env -u A zap x
env -C . zap x
env --chdir=. zap x
nohup zap x
nice zap x
nice -n 5 zap x
nice -5 zap x
ionice -c 3 zap x
timeout 5 zap x
timeout -s KILL 5 zap x
timeout --signal=KILL 5 zap x
setsid zap x; sleep 0.3
setsid -w zap x
stdbuf -o0 zap x
stdbuf -oL bin/zap x
taskset 1 bin/zap x
taskset -c 0 zap x
chrt -o 0 zap x
setarch -R zap x
setarch x86_64 zap x
prlimit --nofile=100 zap x
prlimit -n100 bin/zap x
setpriv --no-new-privs zap x
flock names zap x
flock names -c 'zap x'
script -qc 'zap x' /dev/null
script -qc'zap x' /dev/null
script -c zap -q out
choom -n 0 zap x
linux64 zap x
xargs zap < names
xargs -I X zap X < names
xargs -n 1 zap < names
echo x | xargs zap
echo zap x | xargs env
echo zap x | xargs -I X sh -c X
echo 'zap x' | sh
echo 'zap x' | bash
echo emFwIHgK | base64 -d | sh
printf 'zap\nx\n' | xargs env
find . -name names -exec zap {} +
find . -name names -exec zap {} \;
find . -name names -execdir zap {} \;
find bin -name 'za?' -exec {} x \;
sh -c 'zap x'
sh -c "zap x"
sh -c zap\ x
sh -c z''ap\ x
sh -c 'z""ap x'
sh -c 'z\ap x'
sh -c '$(echo zap) x'
sh -ec 'zap x'
sh -c -- 'zap x'
bash -c 'zap x'
bash -co errexit 'zap x'
bash -O extglob -c 'zap x'
bash -c 'exec "$@"' - zap x
bash -c '"$@"' - zap x
bash -c '$0 x' zap
bash <<< 'zap x'
bash < script
bash -s < script
bash --rcfile script -i < /dev/null
bash --init-file script -i < /dev/null
dash -c 'zap x'
sh -c 'sh -c "zap x"'
sh -c "sh -c 'zap x'"
zap
zap;
zap&
zap x &
""zap x
''zap x
zap '' x
zap "x"
zap $PWD
zap *
zap ~
zap x{1,2}
~+/bin/zap x
cd bin && ./zap x
cd bin; ./zap x
pushd bin > /dev/null; ./zap x
cp bin/zap bin/other; bin/other x
ln -sf zap bin/other; other x
PATH=bin:$PATH; zap x
PATH=$PWD/bin zap x
p() { "$@"; }; p zap x
p=z; q=ap; $p$q x
IFS=,; p=zap,x; $p
eval "$(printf '\x7a\x61\x70 x')"
$(tr a-z n-za-m <<< mnc) x
$(<names)
`cat names`
""$(<names)
"""

# Lines that run zap through a program that takes code.
CODE = r"""
python3 -c 'import os; os.system("zap x")'
python3 -c "import os; os.system('z' + 'ap x')"
python3 -c 'import subprocess as s; s.run(["zap"])'
python3 -c 'import os; os.execvp("z" "ap", ["x"])'
python3 -m timeit -n 1 -r 1 -s 'import os' 'os.system("z" + "ap x")'
perl -e 'system("zap x")'
perl -e 'system "z"."ap x"'
perl -e exec+zap
perl -e 'print `zap x`'
awk 'BEGIN { system("zap x") }'
awk 'BEGIN { system("z" "ap x") }'
awk 'BEGIN { "zap x" | getline }'
sed -n '1e zap x' names
sed '1e z''ap x' names
git -c alias.p='!zap x' p
git -c alias.p='!z""ap x' p
make --eval 'p:;zap x' p
tar -cf /dev/null names --checkpoint=1 --checkpoint-action=exec=zap
tar -cf /dev/null --use-compress-program='zap x' names
tar -Izap -cf out.tar names
python3 -c 'import os; os.system(chr(122)+chr(97)+chr(112))'
perl -e 'exec(chr(122).q(ap))'
node -e 'require(String.raw`child_process`).execSync(String.raw`zap x`)'
awk 'BEGIN { cmd = "z" "ap"; cmd | getline }'
find . -maxdepth 0 -exec sh -c 'z""ap x' \;
vim -es -c '!zap x' -c q
ed -s <<< '!zap x'
"""

# Lines that run zap through a file, a link or a configuration, which no rule can see.
FILES = r"""
. ./script
source ./script
python3 script.py
python3 - < script.py
perl script.pl
awk -f script.awk
sed -f script.sed names
git -c core.fsmonitor=./script status
git p
make
make p
make -f script.mk
bash script
sh script
./script
env ./script
/lib64/ld-linux-x86-64.so.2 /bin/sh script
zip x
bin/zip x
env zip x
"""

# Lines as an agent runs them. None of them runs zap; the second half mentions it.
ORDINARY = r"""
ls
ls -la
ls src
pwd
cat README.md
cat pyproject.toml src/main.py
head -50 src/main.py
tail -n 20 log.txt
wc -l src/main.py
file bin/tool
stat src
git status
git status --short
git diff
git diff --stat HEAD~1
git log --oneline -5
git log -p -2 src/main.py
git show HEAD
git show HEAD^:README.md
git branch -a
git blame src/main.py
git add src/main.py
git commit -m "Fix the parser"
git commit -m "fix: handle (empty) input"
python3 -m pytest -q
pytest -q tests/test_main.py
pytest -x -k parser
ruff check .
mypy src
npm test
npm run build
cargo test
go test ./...
make
make test
grep -rn TODO src
grep -n "def main" src/main.py
grep -rn 'class Parser(' src
find . -name '*.py'
find src -type f -newer README.md
cd src && ls
pytest -q 2>&1 | tail -20
git log --oneline | head -5
ls *.py
sed -n '1,40p' src/main.py
echo done
mkdir -p build/out
cp a.txt b.txt
diff a.txt b.txt
python3 -c 'print(1)'
man zap
which zap
type zap
command -v zap
apropos zap
whatis zap
info zap
zap2 --help
ls zap
ls src/zap
ls -l zap.py
cat zap.md
cat docs/zap
cat src/zap.py
head docs/zap.txt
tail zap.log
grep -rn zap src
grep -n "zap" README.md
grep -rn 'zap(' src
grep -rni "zap files" docs
grep -c zap names
rg zap
rg -n zap src
ag zap
find . -name zap
find . -name zap.py
find . -path ./zap
git log --grep zap
git log --grep=zap
git log -S zap
git diff zap
git diff zap.py
git show HEAD:zap.py
git blame src/zap.py
git add zap.py
git commit -m "Document zap"
git commit -m "fix: zap"
git checkout -b zap
git grep zap
pytest -q tests/test_zap.py
pytest -k zap
python3 -m zap_tools
echo zap
echo "do not zap"
wc -l zap.py
mkdir zap
touch zap.txt
docker run --zap image
npm install zap
pip show zap
"""


def lines(text: str) -> list[str]:
    """Return the lines of one of the lists above, without empty lines."""
    return [line for line in text.strip("\n").split("\n") if line]
