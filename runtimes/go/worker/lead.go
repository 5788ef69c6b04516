package fngwruntime

import (
	"sync/atomic"
	"time"
)

const (
	// A step of the leader that takes longer than one of these, and less than two, costs it the lead.
	watchInterval = time.Millisecond
	// Calls are quick while they take less on average, in which the newest counts as one of so many, and no call more than
	// a slow one: a few may be slow only because the processor was somebody else's meanwhile.
	quickCall      = 25 * time.Microsecond
	slowCall       = callsOfAverage * quickCall
	callsOfAverage = 16
)

// leadership is about which goroutine reads. One leads: it reads calls and runs quick ones itself, because to wake another
// one costs more than such a call. Before a slow one it lets another goroutine lead; of one that turns out to be slow a
// watcher takes the lead away. Every call runs in the goroutine that read it, so none waits behind another for long.
type leadership struct {
	// Number of the leader's step. Even while it waits for frames, or when nobody leads: then there is nothing to take away.
	// It only grows, so nobody takes an old step for the present one.
	step atomic.Uint64
	// Takes the lead to a goroutine that waits for it.
	vacant chan struct{}
	// Rings for a look at the leader. Set while something is done.
	alarm *alarm
	// Nanoseconds that calls took lately.
	average atomic.Int64
}

func newLeadership() *leadership {
	return &leadership{vacant: make(chan struct{})}
}

// vacate lets another goroutine lead: one that waits, or a new one, which `begin` starts.
func (l *leadership) vacate(begin func()) {
	select {
	case l.vacant <- struct{}{}:
	default:
		begin()
	}
}

func (l *leadership) isQuick() bool {
	return l.average.Load() < int64(quickCall)
}

// learn keeps the average of what calls take.
func (l *leadership) learn(took time.Duration) {
	if took > slowCall {
		took = slowCall
	}
	// Of two goroutines at once one may be forgotten.
	average := l.average.Load()
	l.average.Store(average + (int64(took)-average)/callsOfAverage)
}

// watch begins to take the lead away from goroutines that are stuck in one step: it looks when a leader has not rested for a while.
// Before each look it does what the leader has no time for.
func (l *leadership) watch(beside, begin func()) {
	seen := uint64(0)
	l.alarm = newAlarm(watchInterval, func() {
		beside()
		switch step := l.step.Load(); {
		case step%2 == 0:
			return
		case step != seen:
			seen = step
		case l.step.CompareAndSwap(step, step+1):
			// What is behind it may be as slow.
			if l.isQuick() {
				l.average.Store(int64(2 * quickCall))
			}
			l.vacate(begin)
			return
		}
		l.alarm.set(clock())
	})
}

// lead is what a goroutine knows about its lead. Each step may find that it was taken away.
type lead struct {
	of     *leadership
	step   uint64
	isHeld bool
}

// take is called by the one goroutine that was told to lead.
func (l *leadership) take() *lead {
	taken := &lead{of: l, isHeld: true}
	taken.begin(clock())
	return taken
}

// begin tells that something begins after a wait.
func (l *lead) begin(now time.Duration) {
	l.step = l.of.step.Load() + 1
	l.of.step.Store(l.step)
	l.of.alarm.set(now)
}

// advance tells that the next thing begins. It is false when the lead is another goroutine's.
func (l *lead) advance() bool { return l.move(2) }

// proceed tells that the next thing begins now, so that nobody need look before long.
func (l *lead) proceed(now time.Duration) {
	if l.advance() {
		l.of.alarm.set(now)
	}
}

// rest tells that nothing is done any more until begin. It is false when the lead is another goroutine's.
func (l *lead) rest() bool { return l.move(1) }

// passOn lets another goroutine lead, if this one still does.
func (l *lead) passOn(begin func()) {
	if l.rest() {
		l.isHeld = false
		l.of.vacate(begin)
	}
}

func (l *lead) move(steps uint64) bool {
	next := l.step + steps
	l.isHeld = l.isHeld && l.of.step.CompareAndSwap(l.step, next)
	l.step = next
	return l.isHeld
}
