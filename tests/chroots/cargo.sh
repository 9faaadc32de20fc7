# The command alone, by `cargo install` without a network. The crates were downloaded before.
. /mnt/source/tests/chroots/common.sh

install gcc libc6-dev
remember

heading 'cargo install'
export CARGO_HOME=/mnt/cargo CARGO_TARGET_DIR=/var/cache/target PATH="/mnt/rust/bin:$PATH"
cargo install --path /mnt/source/tools/urxe --locked --offline --root /opt/urxe
as_user /opt/urxe/bin 'urxe doctor'
as_user /opt/urxe/bin 'urxe pingpong --quick'

heading 'without the libraries'
as_user /opt/urxe/bin '! urxe run -- true 2> error && cat error'
grep -q 'liburxe.so is not in /opt/urxe/bin, ' /home/user/error
rm /home/user/error

heading 'cargo uninstall'
cargo uninstall --root /opt/urxe urxe-tools
rm -r /opt/urxe
nothing_left
