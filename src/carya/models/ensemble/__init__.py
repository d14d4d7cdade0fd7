"""Several models combined into one."""
