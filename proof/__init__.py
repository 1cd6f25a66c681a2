"""The tools that show, simulate, break and measure Lockstep. Nothing of them is deployed.

`demo` shows the main job, `simulation` runs the engine in virtual time, `chaos` kills real
processes, `bench` measures what a message costs; `testbed`, on which all but the simulation stand,
starts and breaks a local cloud.
"""
