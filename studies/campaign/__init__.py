"""Hard knocks: kills, edited files, full disks, second writers, jumping clocks and lying devices."""
