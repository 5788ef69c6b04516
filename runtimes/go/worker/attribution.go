package fngwruntime

import (
	"context"
	"os"
	"runtime/pprof"
	"unsafe"
)

// fileOutput is asked before a file is written. The build puts the variable and a look at it into package os; a program
// that was built without them never calls it, and all its output comes by way of the descriptors.
//
//go:linkname fileOutput os.fngwOutput
var fileOutput func(file *os.File, text []byte) bool

// Labels of goroutines are there for profiles. They are what the language hands on to a goroutine from the one that
// starts it, and each set of them is an object of its own.
//
//go:linkname goroutineLabel runtime/pprof.runtime_getProfLabel
func goroutineLabel() unsafe.Pointer

var callLabels = pprof.Labels("fngw", "call")

func withLabels(ctx context.Context) context.Context {
	return pprof.WithLabels(ctx, callLabels)
}

// labelGoroutine gives the calling goroutine a label of its own, which holds as long as anyone has it; a context made by
// withLabels tells it to those that set labels themselves and put them back.
func labelGoroutine(ctx context.Context) unsafe.Pointer {
	if ctx == nil {
		ctx = withLabels(context.Background())
	}
	pprof.SetGoroutineLabels(ctx)
	return goroutineLabel()
}

// unlabelGoroutine takes the label off the calling goroutine; those that it started keep theirs.
func unlabelGoroutine() {
	pprof.SetGoroutineLabels(context.Background())
}
