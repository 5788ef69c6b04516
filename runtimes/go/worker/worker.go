// Package fngwruntime serves one compiled function over a socket of its own: it is built together with the handler.
//
//	fn --socket <path | tcp://host:port>
//	tells the uri it listens on in one line on descriptor 3
//
// Pages: runtimes/go, runtime/wire-protocol.
package fngwruntime

import (
	"context"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Where a recursion without end is stopped; the language's own limit is all of a machine's memory.
const maxStackBytesOfCall = 64 * mib

const (
	// Calls are quick while they take less on average, in which the newest counts as one of so many, and no call more than
	// a slow one.
	quickCall      = 50 * time.Microsecond
	slowCall       = time.Millisecond
	callsOfAverage = 16
)

type worker struct {
	function
	conn    net.Conn
	reader  *frameReader
	writer  *frameWriter
	capture *capture
	invoke  invoke
	// The handler takes a context.
	wantsContext bool

	mu    sync.Mutex
	calls map[uint32]*call
	// Takes a call to a goroutine that waits for one.
	idle    chan *call
	running sync.WaitGroup
	// Nanoseconds that calls took lately.
	average atomic.Int64
}

// one is the worker of this process. It meets the gateway before the handler's package is initialised, so that the
// function's environment and folder are in force for the package's own variables and init functions.
var one = &worker{calls: map[uint32]*call{}, idle: make(chan *call)}

func init() {
	if len(os.Args) != 3 || os.Args[1] != "--socket" {
		fail("this program is a function of a gateway, which starts it with --socket")
	}
	listener, uri, err := listen(os.Args[2])
	if err != nil {
		fail("worker cannot listen on " + os.Args[2] + ": " + err.Error())
	}
	lifeline := os.NewFile(3, "lifeline")
	syscall.CloseOnExec(3)
	if _, err := lifeline.WriteString(uri + "\n"); err != nil {
		fail("worker cannot tell its socket: " + err.Error())
	}
	go func() {
		// The daemon holds the other end: where nothing else tells a worker of the daemon's end, this does.
		_, _ = lifeline.Read(make([]byte, 1))
		os.Exit(0)
	}()
	if limit := memoryLimit(); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	debug.SetMaxStack(maxStackBytesOfCall)
	one.meet(listener)
	one.start()
}

// Serve answers calls with the handler until the gateway hangs up.
func Serve[H Handler](handler H) {
	one.invoke, one.wantsContext = toInvoke(handler)
	one.writer.send(kindReady, 0, `{"max_inflight":0}`, nil)
	for {
		next, err := one.reader.next()
		if broken, isProtocol := err.(protocolError); isProtocol {
			refuse(one.conn, string(broken))
			os.Exit(1)
		}
		if err != nil {
			break
		}
		if problem := one.take(next); problem != "" {
			refuse(one.conn, problem)
			os.Exit(1)
		}
	}
	// The gateway sends nothing more: what runs is finished.
	one.running.Wait()
	one.capture.begin(&call{})
	one.writer.flush()
	one.conn.Close()
	os.Exit(0)
}

// take handles a frame; it returns why the connection cannot go on.
func (w *worker) take(next frame) string {
	switch next.kind {
	case kindCall:
		fields, err := parseObject(next.header)
		if err != nil {
			return "BAD_HEADER: " + err.Error()
		}
		w.mu.Lock()
		if w.calls[next.id] != nil {
			w.mu.Unlock()
			return "DUPLICATE_ID: call id " + strconv.Itoa(int(next.id)) + " is in use"
		}
		opened := &call{id: next.id, worker: w, credit: streamWindowBytes}
		opened.changed.L = &opened.mu
		if w.wantsContext {
			opened.ctx, opened.cancelContext = context.WithCancel(withLabels(context.Background()))
		}
		w.calls[next.id] = opened
		w.mu.Unlock()
		w.running.Add(1)
		w.capture.begin(opened)
		opened.fields, opened.body = fields, next.body
		select {
		case w.idle <- opened:
		default:
			go w.runCalls(opened)
		}
	case kindCancel:
		w.mu.Lock()
		open := w.calls[next.id]
		w.mu.Unlock()
		if open != nil {
			open.cancel()
		}
	case kindMore:
		fields, err := parseObject(next.header)
		if err != nil {
			return "BAD_HEADER: " + err.Error()
		}
		w.mu.Lock()
		open := w.calls[next.id]
		w.mu.Unlock()
		if granted, isNumber := fields["bytes"].(float64); isNumber && granted > 0 && open != nil {
			open.grant(int(granted))
		}
	case kindPing:
		w.writer.send(kindPong, next.id, "", nil)
	case kindPong:
	default:
		return "UNEXPECTED_KIND: a worker does not take frames of kind " + strconv.Itoa(int(next.kind))
	}
	return ""
}

// runCalls runs a call and then those it is given, in one goroutine: its stack has grown to what they need.
func (w *worker) runCalls(first *call) {
	for next := first; next != nil; next = <-w.idle {
		next.run(next.fields, next.body)
		unlabelGoroutine()
	}
}

// learn keeps the average of what calls take: while they are quick, answers may wait for each other.
func (w *worker) learn(took time.Duration) {
	if took > slowCall {
		took = slowCall
	}
	average := w.average.Load()
	average += (int64(took) - average) / callsOfAverage
	w.average.Store(average)
	w.writer.isPatient.Store(average < int64(quickCall))
}
