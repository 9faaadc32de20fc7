"""The tests of the installed package. ``cargo xtask wheel --check`` runs them."""
pytest_plugins = ["pytester"]
