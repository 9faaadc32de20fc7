# The wheel in a virtual environment: the command, a test with the plugin for pytest, removal.
. /mnt/source/tests/chroots/common.sh

install ibverbs-utils python3-pytest python3-venv
python3 -m venv --system-site-packages /opt/venv
remember

heading 'pip install'
export PYTHONDONTWRITEBYTECODE=1
/opt/venv/bin/pip install --no-index --no-compile /mnt/packages/urxe-*_"$(uname -m)".whl
as_user /opt/venv/bin 'urxe doctor'
pingpong /opt/venv/bin
as_user /opt/venv/bin 'python -m pytest -v -p no:cacheprovider --basetemp=/tmp/pytest \
	/mnt/source/tests/chroots/test_rdma.py'
rm -r /tmp/pytest

heading 'pip uninstall'
/opt/venv/bin/pip uninstall -y urxe
nothing_left
