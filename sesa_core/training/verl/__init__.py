"""Everything that touches verl and Ray. Importing this package names our CPU platform to verl, before verl is imported."""

from sesa_core.config.environment import name_verl_platform

name_verl_platform()
