// Package fngwruntime serves one compiled function over a socket of its own: it is built together with the handler.
//
//	fn --socket <path | tcp://host:port | fd:number>
//	tells the uri it listens on in one line on descriptor 3; fd is a connection to its gateway, and it listens nowhere
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
	"syscall"
	"time"
)

// Where a recursion without end is stopped; the language's own limit is all of a machine's memory.
const maxStackBytesOfCall = 64 * mib

// Never used, so it takes no memory: the collector begins after as many bytes of garbage more. Without it calls of a small
// function begin it dozens of times a second, each time with threads beside the one that answers.
const spareBytes = 12 * mib

var spare []byte

// To have it begins the collector once, which a first call shall not wait for.
const spareDelay = 100 * time.Millisecond

// Calls follow each other closely when none comes later than this after the one before.
const denseWait = time.Millisecond

type worker struct {
	function
	conn connection
	// Locked by the goroutine that leads, while it reads; one that lost the lead may not know yet.
	reading sync.Mutex
	reader  *frameReader
	writer  *frameWriter
	capture *capture
	invoke  invoke
	// The handler takes a context.
	wantsContext bool
	// Somebody has led; what is there before leaves with the first answer.
	hasLed bool

	leadership *leadership
	// What the daemon holds the other end of.
	lifeline *os.File
	settled  sync.Once
	mu       sync.Mutex
	calls    map[uint32]*call
	running  sync.WaitGroup
}

// one is the worker of this process. It meets the gateway before the handler's package is initialised, so that the
// function's environment and folder are in force for the package's own variables and init functions.
var one = &worker{calls: map[uint32]*call{}, leadership: newLeadership()}

func init() {
	if len(os.Args) != 3 || os.Args[1] != "--socket" {
		fail("this program is a function of a gateway, which starts it with --socket")
	}
	conn, err := inherited(os.Args[2])
	if err != nil {
		fail("worker has no connection " + os.Args[2] + ": " + err.Error())
	}
	one.lifeline = os.NewFile(3, "lifeline")
	syscall.CloseOnExec(3)
	debug.SetMaxStack(maxStackBytesOfCall)
	if conn == nil {
		listener := announce(os.Args[2], one.lifeline)
		go one.endWithDaemon()
		one.meet(listener)
	} else {
		one.meetOnly(conn)
	}
	one.start()
}

// endWithDaemon ends the process where nothing else tells it of the daemon's end.
func (w *worker) endWithDaemon() {
	_, _ = w.lifeline.Read(make([]byte, 1))
	os.Exit(0)
}

// settleIn does what a worker needs, but not its first call: each goroutine that begins wakes a thread, which takes the
// processor from that call. It is done when that is answered, or has taken a moment.
func (w *worker) settleIn() {
	w.settled.Do(func() {
		w.writer.flush()
		if limit := memoryLimit(); limit > 0 {
			debug.SetMemoryLimit(limit + spareBytes)
		}
		for _, stream := range w.capture.streams {
			go w.capture.follow(stream)
		}
		go w.endWithDaemon()
		time.AfterFunc(spareDelay, func() { spare = make([]byte, spareBytes) })
	})
}

// announce listens, and tells the daemon where.
func announce(address string, daemon *os.File) net.Listener {
	listener, uri, err := listen(address)
	if err != nil {
		fail("worker cannot listen on " + address + ": " + err.Error())
	}
	if _, err := daemon.WriteString(uri + "\n"); err != nil {
		fail("worker cannot tell its socket: " + err.Error())
	}
	return listener
}

// Serve answers calls with the handler until the gateway hangs up.
func Serve[H Handler](handler H) {
	one.invoke, one.wantsContext = toInvoke(handler)
	const text = `{"max_inflight":0}`
	if one.reader.hasNext() {
		// With the answer the gateway is woken once.
		one.writer.join(kindReady, 0, text, nil)
	} else {
		one.writer.send(kindReady, 0, text, nil)
	}
	// In this goroutine: another one would wake a thread.
	one.work()
}

// work leads, again and again.
func (w *worker) work() {
	var held *lead
	defer func() {
		// The handler ended the goroutine.
		w.writer.flush()
		held.passOn(w.begin)
	}()
	for {
		held = w.leadership.take()
		w.lead(held)
		<-w.leadership.vacant
	}
}

// begin lets another goroutine work.
func (w *worker) begin() { go w.work() }

// lead reads frames, and runs their calls, as long as this goroutine leads.
func (w *worker) lead(held *lead) {
	// True while the last thing done was to end a call.
	follows := false
	// True while calls follow each other closely: to keep the thread for longer costs more than it saves.
	isDense, rested := false, time.Duration(0)
	if w.hasLed {
		w.writer.flush()
	} else {
		w.hasLed = true
	}
	for held.isHeld {
		w.reading.Lock()
		isWaiting := !w.reader.hasNext()
		if isWaiting {
			w.reading.Unlock()
			follows = false
			w.writer.flush()
			if !held.rest() {
				break
			}
			w.settleIn()
			rested = clock()
			if !isDense {
				w.leadership.alarm.clear()
			}
			mayKeep := isDense && w.isAlone()
			w.reading.Lock()
			w.conn.keepThread(mayKeep)
		} else if !held.advance() {
			// Another one reads, and what was there may be gone.
			w.reading.Unlock()
			break
		}
		next, err := w.reader.next()
		w.reading.Unlock()
		if isWaiting {
			now := clock()
			isDense = now-rested < denseWait
			held.begin(now)
		}
		if broken, isProtocol := err.(protocolError); isProtocol {
			w.refuse(string(broken))
		}
		if err != nil {
			// Nobody shall lead in its place: there is nothing to read.
			if held.rest() {
				w.end()
			}
			break
		}
		problem := ""
		if next.kind == kindCall {
			problem = w.takeCall(next, held, follows)
		} else {
			problem = w.take(next)
		}
		if problem != "" {
			w.refuse(problem)
		}
		follows = true
	}
	// What was added before the lead was lost.
	w.writer.flush()
}

// isAlone is true while no call is open.
func (w *worker) isAlone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls) == 0
}

// refuse tells how the gateway broke the protocol.
func (w *worker) refuse(problem string) {
	w.writer.flush()
	refuse(w.conn, problem)
	os.Exit(1)
}

// end is called when the gateway sends nothing more: what runs is finished.
func (w *worker) end() {
	w.running.Wait()
	w.capture.settle()
	w.writer.settle()
	w.conn.Close()
	os.Exit(0)
}

// takeCall runs a call; it returns why the connection cannot go on.
func (w *worker) takeCall(next frame, held *lead, follows bool) string {
	event, err := w.toEvent(next.header)
	if err != nil {
		return "BAD_HEADER: " + err.Error()
	}
	opened := &call{id: next.id, worker: w, lead: held, credit: streamWindowBytes}
	opened.changed.L = &opened.mu
	if w.wantsContext {
		opened.ctx, opened.cancelContext = context.WithCancel(withLabels(context.Background()))
	}
	w.mu.Lock()
	if w.calls[next.id] != nil {
		w.mu.Unlock()
		return "DUPLICATE_ID: call id " + strconv.Itoa(int(next.id)) + " is in use"
	}
	w.calls[next.id] = opened
	w.mu.Unlock()
	w.running.Add(1)
	if w.leadership.isQuick() {
		held.advance()
	} else {
		w.passOn(held)
	}
	w.capture.begin(opened, follows)
	defer unlabelGoroutine()
	opened.run(event, next.body)
	return ""
}

// passOn lets another goroutine read. Answers that wait for others would wait too long.
func (w *worker) passOn(held *lead) {
	w.writer.flush()
	held.passOn(w.begin)
}

// take handles a frame other than a call; it returns why the connection cannot go on.
func (w *worker) take(next frame) string {
	switch next.kind {
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
