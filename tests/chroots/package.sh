# The Debian package: its manual, a pair of programs, all programs of the machine, removal.
. /mnt/source/tests/chroots/common.sh

install ibverbs-utils man-db
remember

heading 'apt-get install'
install /mnt/packages/urxe_*.deb
man urxe-run | sed -n 1,8p
man urxe-run | grep -q '^NAME'
as_user /usr/bin 'urxe doctor'
pingpong /usr/bin

heading 'all programs'
urxe install --system-wide
as_user /usr/bin 'ibv_devinfo | grep rxe0'
urxe uninstall --system-wide
fails as_user /usr/bin 'ibv_devinfo | grep rxe0'

heading 'removal while all programs use it'
urxe install --system-wide
dpkg -P urxe
fails sh -c 'ldconfig -p | grep urxe'
fails as_user /usr/bin 'ibv_devinfo | grep rxe0'
nothing_left
