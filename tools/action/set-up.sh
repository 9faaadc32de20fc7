#!/usr/bin/env bash
# Installs urxe for a job of GitHub Actions, and sets the environment of its later steps. The step of
# action.yml sets the variables PACKAGE, DEVICES, FAULTS and CAPTURES. The runner sets RUNNER_TEMP,
# GITHUB_ENV, GITHUB_PATH and GITHUB_OUTPUT.
set -euo pipefail

fail() {
	echo "::error title=urxe::$1"
	exit 1
}

source=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
temporary=${RUNNER_TEMP:?is not set: this script is a step of a GitHub Action}
prefix=$temporary/urxe
mkdir -p "$prefix"

case ${PACKAGE:-} in
	'')
		command -v cargo > /dev/null ||
			fail "cargo is not installed, so urxe cannot be built: set the input package"
		(cd "$source" && cargo xtask install --prefix "$prefix")
		;;
	*.deb)
		[ -f "$PACKAGE" ] || fail "there is no file $PACKAGE: correct the input package"
		# Unpacked and not installed, so the job needs no root.
		dpkg-deb --extract "$PACKAGE" "$temporary/urxe-deb"
		prefix=$temporary/urxe-deb/usr
		;;
	*.tar.gz)
		[ -f "$PACKAGE" ] || fail "there is no file $PACKAGE: correct the input package"
		tar -xzf "$PACKAGE" -C "$prefix" --strip-components=1
		;;
	*) prefix=$(realpath -m -- "$PACKAGE") ;;
esac
urxe=$prefix/bin/urxe
[ -x "$urxe" ] ||
	fail "there is no program $urxe: the input package is a .deb, a .tar.gz or an installed prefix"

# Writes a variable for the later steps. The marker cannot be a line of a value.
set_variable() {
	local marker
	marker=urxe-$RANDOM$RANDOM$RANDOM
	printf '%s<<%s\n%s\n%s\n' "$1" "$marker" "$2" "$marker" >> "$GITHUB_ENV"
}

options=()
if [ -n "${DEVICES:-}" ]; then
	export URXE_DEVICES=$DEVICES
	"$urxe" devinfo > "$temporary/urxe-devices" || fail "urxe refused the input devices"
	set_variable URXE_DEVICES "$DEVICES"
fi
if [ -n "${FAULTS:-}" ]; then
	options+=(--fault "$FAULTS")
fi
if [ -n "${CAPTURES:-}" ]; then
	mkdir -p "$CAPTURES"
	options+=(--capture "$(realpath -- "$CAPTURES")/%p.pcapng")
fi
"$urxe" doctor || fail "urxe does not work on this machine: see the rows of urxe doctor above"
environment=$("$urxe" env "${options[@]}") || fail "urxe refused an input: see the message above"
while IFS= read -r line; do
	[[ $line =~ ^export\ ([A-Z_]+)= ]] || fail "urxe env printed an unknown line: $line"
	name=${BASH_REMATCH[1]}
	value=$(eval "$line" && printf '%s' "${!name}")
	if [ "$name" = PATH ]; then
		# The folder of the small commands, which urxe env puts first.
		[ "$value" = "$PATH" ] || echo "${value%%:*}" >> "$GITHUB_PATH"
	else
		set_variable "$name" "$value"
	fi
done <<< "$environment"
echo "$prefix/bin" >> "$GITHUB_PATH"
echo "prefix=$prefix" >> "$GITHUB_OUTPUT"
