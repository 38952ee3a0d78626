"""Options of nets and commands, switches of the environment, plug-ins. Imports errors alone."""
