# Functions of the checks of cargo xtask chroots.

# Prints a heading.
heading() {
	printf '\n== %s\n' "$*"
}

# Installs packages, which may be files.
install() {
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends "$@" > /var/log/install 2>&1 ||
		{ cat /var/log/install; exit 1; }
}

# as_user FOLDER COMMAND: runs a command of the shell as an ordinary user, in a network namespace with
# nothing but loopback. PATH begins with the folder.
as_user() {
	id user > /dev/null 2>&1 || useradd --create-home user
	unshare --net sh -c 'ip link set lo up && exec su user -c "cd && PATH=$1:\$PATH && $2"' sh "$1" "$2"
}

# pingpong FOLDER: runs both sides of ibv_rc_pingpong by the urxe of the folder.
pingpong() {
	as_user "$1" 'sh -eu /mnt/source/tests/chroots/pingpong.sh'
}

# fails COMMAND...: fails if the command succeeds.
fails() {
	if "$@"; then
		echo "this should fail: $*"
		exit 1
	fi
}

# Prints the files of this Debian. The system's caches and logs are left out.
files() {
	find / \( -path /proc -o -path /sys -o -path /mnt -o -path /var/log -o -path /var/cache \
		-o -path /var/lib/apt -o -path /var/lib/dpkg \) -prune -o -print | LC_ALL=C sort
}

# remember: writes the list of the files.
remember() {
	as_user /bin true
	files > /var/log/before
}

# nothing_left: fails if there is another file than before. A user's links to libraries remain, and
# empty folders for running programs.
nothing_left() {
	files | LC_ALL=C comm -3 /var/log/before - > /var/log/changed
	fails grep -vE '^\s*(/home/user/\.cache(/urxe.*)?|/tmp/urxe-1000(/run)?)$' /var/log/changed
}
