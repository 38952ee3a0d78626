"""What build.py and setup.py are made of. Standard library only, and no part of the package."""
