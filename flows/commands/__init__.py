"""The commands of `sesa`, one module per concept. Heavy imports stand inside the commands: `sesa --help` must be quick."""
