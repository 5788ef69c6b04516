package fngwruntime

import "sync"

const (
	// Memory from so many bytes on is used again.
	leastReusedBytes = 64 * kib
	// What is larger is left to the collector.
	mostReusedBytes = 2 * mib
)

// reused has the memory of bodies that no handler has seen: of calls whose body was no text, and of answers decoded from base64.
// Without it each such body is filled with zeros first and left to the collector. What nobody takes for a while the collector gets.
var reused sync.Pool

// takeMemory gives memory with anything in it.
func takeMemory(size int) []byte {
	if size >= leastReusedBytes && size <= mostReusedBytes {
		held, isHeld := reused.Get().(*[]byte)
		// A handler may keep a text as long as it likes, and with it all of the memory that it lies in.
		if isHeld && cap(*held) >= size && cap(*held)/2 <= size {
			return (*held)[:size]
		}
	}
	return make([]byte, size)
}

// giveMemory takes memory that nobody looks into any more.
func giveMemory(memory []byte) {
	if cap(memory) >= leastReusedBytes && cap(memory) <= mostReusedBytes {
		reused.Put(&memory)
	}
}
