<?php
/**
 * The worker that is forked ahead for a gateway, which connects to it before it has a function for it. Page: runtime/ready-workers.
 */

declare(strict_types=1);

namespace Fngw;

/** Who takes such workers, the one that waits, and when the next one is forked. */
final class Offer
{
    /** Time without a `start` before the next process is forked: a first call shall have the processor for itself, ns. */
    private const DELAY_NS = 50_000_000;

    /** Monotonic ns at which the next one is forked; 0 when none is wanted. */
    public int $dueAt = 0;
    private ?Control $taker = null;
    /** The gateway was told of it, and has not given it a function yet. */
    private ?WorkerProcess $worker = null;

    public function begin(Control $taker): void
    {
        $this->taker = $taker;
        $this->plan();
    }

    /** Again with each `start`, so that the fork disturbs none. */
    public function plan(): void
    {
        if ($this->taker !== null && $this->worker === null) {
            $this->dueAt = \hrtime(true) + self::DELAY_NS;
        }
    }

    /** @return Control|null for whom one is to be forked now */
    public function takeDue(int $now): ?Control
    {
        if ($this->dueAt === 0 || $this->dueAt > $now) {
            return null;
        }
        $this->dueAt = 0;
        return $this->taker;
    }

    public function wait(WorkerProcess $worker): void
    {
        $this->worker = $worker;
    }

    public function isWaiting(): bool
    {
        return $this->worker !== null;
    }

    /** It gets a function; the next one follows. @return WorkerProcess|null null when it is not there, or another gateway's */
    public function give(Control $taker, string $id): ?WorkerProcess
    {
        $worker = $this->taker === $taker && $this->worker?->id === $id ? $this->worker : null;
        if ($worker !== null) {
            $this->worker = null;
        }
        $this->plan();
        return $worker;
    }

    public function forgetWorker(WorkerProcess $worker): void
    {
        if ($this->worker === $worker) {
            $this->worker = null;
        }
    }

    public function forgetTaker(Control $taker): void
    {
        if ($this->taker === $taker) {
            $this->taker = $this->worker = null;
            $this->dueAt = 0;
        }
    }
}
