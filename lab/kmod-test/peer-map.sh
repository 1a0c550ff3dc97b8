# Functions of the peer map's proof, for the guest's shell.

MAP=/dev/peerway-map
MEMORY=0x80000000

# say COMMAND: one write to the module; prints "done" or "refused" and the module's last words.
say() {
	if printf '%s' "$1" 2>/dev/null >"$MAP"; then printf 'done '; else printf 'refused '; fi
	sed -n 's/^last [0-9]* //p' "$MAP"
}

# entry VERB FROM TO: of two buses, all of TO's memory for FROM.
entry() {
	say "$1 0000:$2:00.0 0000:$3:00.1 2 0 ${MEMORY} 0000:$2:00.1"
}

# each VERB BUS...: for every ordered pair.
each() {
	verb=$1
	shift
	for from in "$@"; do
		for to in "$@"; do
			[ "$from" = "$to" ] || entry "$verb" "$from" "$to"
		done
	done
}

# range BUS: "START LENGTH" of the memory; remembered, since the device may go.
range() {
	if [ ! -s "/tmp/range-$1" ]; then
		set -- "$1" $(sed -n 3p "/sys/bus/pci/devices/0000:$1:00.1/resource")
		echo "$2 $(($3 - $2 + 1))" >"/tmp/range-$1"
	fi
	cat "/tmp/range-$1"
}

# bits BUS: the narrowest mask that holds the end of the memory.
bits() {
	set -- $(range "$1")
	end=$(($1 + $2 - 1))
	n=32
	while [ $((end >> n)) -gt 0 ]; do n=$((n + 1)); done
	echo "$n"
}

# walk FROM TO: pages of TO's memory that FROM's domain translates.
walk() {
	echo "0000:$1:00.0 $(range "$2")" >/dev/lab-walk
	echo "$1 $2 $(cat /dev/lab-walk)"
}

walks() {
	for from in "$@"; do
		for to in "$@"; do
			[ "$from" = "$to" ] || walk "$from" "$to"
		done
	done
}

# everywhere BUS...: every domain over every memory, its own included.
everywhere() {
	for from in "$@"; do
		for to in "$@"; do
			walk "$from" "$to"
		done
	done
}

state() {
	cat "$MAP"
}

# dma COMMAND: for the lab's own module.
dma() {
	echo "$1" >/dev/lab-dma && cat /dev/lab-dma
}
