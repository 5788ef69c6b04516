<?php
/** A worker as its daemon sees it: socket bound ahead, fork, stop, kill, end. Page: runtime/daemon. */

declare(strict_types=1);

namespace Fngw;

/** A started worker. */
final class WorkerProcess
{
    private const WATCH_NS = 1_000_000_000;
    private const SIGNALS = [
        \SIGHUP => 'SIGHUP', \SIGINT => 'SIGINT', \SIGQUIT => 'SIGQUIT', \SIGILL => 'SIGILL', \SIGTRAP => 'SIGTRAP',
        \SIGABRT => 'SIGABRT', \SIGBUS => 'SIGBUS', \SIGFPE => 'SIGFPE', \SIGKILL => 'SIGKILL', \SIGUSR1 => 'SIGUSR1',
        \SIGSEGV => 'SIGSEGV', \SIGUSR2 => 'SIGUSR2', \SIGPIPE => 'SIGPIPE', \SIGALRM => 'SIGALRM',
        \SIGTERM => 'SIGTERM', \SIGXCPU => 'SIGXCPU', \SIGXFSZ => 'SIGXFSZ', \SIGSYS => 'SIGSYS',
    ];

    /** Signals that end a worker which ran out of memory, and the share of its limit that it must have used then. */
    private const MEMORY_SIGNALS = [\SIGKILL, \SIGABRT, \SIGSEGV, \SIGBUS];
    private const NEARLY_FULL = 0.9;

    public string $id;
    public string $uri;
    public int $pid;
    public string $socketPath;
    /** @var array<string, OutputPipe> by stream name; empty without FFI */
    public array $outputs = [];
    /** Monotonic ns at which a graceful stop becomes a kill; 0 when none runs. */
    public int $killAt = 0;
    /** Monotonic ns until which its end is looked for often: it was killed, or closed an output. */
    public int $watchUntil = 0;
    /** User that its handler runs as; null for the daemon's. */
    public ?int $uid = null;
    /** First cause of its end, told instead of the signal's name. */
    private ?string $reason = null;

    public function __construct(string $id, string $uri, string $socketPath, int $pid)
    {
        $this->id = $id;
        $this->uri = $uri;
        $this->socketPath = $socketPath;
        $this->pid = $pid;
    }

    /**
     * Asks the worker to end after the call it runs (SIGTERM); kills it when it is still there after the grace.
     *
     * @param int $graceMs 0 kills at once
     */
    public function stop(int $graceMs, string $reason, int $now): void
    {
        $this->reason ??= $reason;
        if ($graceMs <= 0) {
            $this->kill();
            return;
        }
        if ($this->killAt === 0) {
            $this->signal(\SIGTERM);
        }
        $killAt = $now + $graceMs * 1_000_000;
        // A second stop may shorten the time, never lengthen it.
        $this->killAt = $this->killAt === 0 ? $killAt : \min($this->killAt, $killAt);
    }

    public function kill(): void
    {
        $this->killAt = 0;
        $this->watch();
        $this->signal(\SIGKILL);
    }

    public function watch(): void
    {
        $this->watchUntil = \hrtime(true) + self::WATCH_NS;
    }

    /**
     * @param int $peakKib most memory that it had resident
     * @param int $memoryMb its limit, 0 for none
     * @return array{worker: string, code: ?int, signal: ?string, reason: string} fields of `exited`
     */
    public function toExit(int $status, int $peakKib, int $memoryMb): array
    {
        $code = \pcntl_wifexited($status) ? \pcntl_wexitstatus($status) : null;
        $number = \pcntl_wifsignaled($status) ? \pcntl_wtermsig($status) : 0;
        $signal = $number === 0 ? null : self::SIGNALS[$number] ?? "signal $number";
        $reason = $this->reason ?? ($signal === null ? "exited with code $code" : "ended by $signal");
        if ($this->reason === null && \in_array($number, self::MEMORY_SIGNALS, true)) {
            // Libraries that get no memory abort or crash; the kernel, when all memory is used up, kills.
            if ($memoryMb > 0 && $peakKib >= $memoryMb * 1024 * self::NEARLY_FULL) {
                $reason = Failure::outOfMemory($memoryMb) . " ($reason)";
            } elseif ($number === \SIGKILL) {
                $reason .= ', perhaps out of memory';
            }
        }
        return ['worker' => $this->id, 'code' => $code, 'signal' => $signal, 'reason' => $reason];
    }

    private function signal(int $signal): void
    {
        // The group takes the worker's children along. A worker that was forked this instant may have no group yet.
        User::asEach($this->uid, function () use ($signal): void {
            if (!@\posix_kill(-$this->pid, $signal)) {
                @\posix_kill($this->pid, $signal);
            }
        });
    }
}

/** Starts workers: the socket bound ahead, then a fork. */
final class Forker
{
    private const STREAMS = ['stdout', 'stderr'];
    /** Stands for an end of a pipe that is somebody else's to close. */
    private const TAKEN = -1;

    private Address $address;
    private System $system;
    private int $memoryMb;
    private int $number = 0;

    public function __construct(Address $address, System $system, int $memoryMb)
    {
        $this->address = $address;
        $this->system = $system;
        $this->memoryMb = $memoryMb;
    }

    /**
     * @param resource $control the connection that asked for it
     * @return WorkerProcess|Job the worker in the daemon, what to go on with in the worker
     * @throws \RuntimeException why no worker could be started
     */
    public function fork($control): WorkerProcess|Job
    {
        $this->number += 1;
        $daemonPid = \posix_getpid();
        // Bound before the fork: the gateway may connect while the worker still sets itself up.
        $address = $this->address->forWorker($this->number, $control);
        $job = new Job();
        $job->listener = $address->listen();
        $job->socketPath = $address->path;
        $job->system = $this->system;
        $job->memoryMb = $this->memoryMb;
        $pipes = [];
        $pid = -1;
        try {
            foreach (self::STREAMS as $_) {
                $pipes[] = $this->system->pipe();
            }
            $pid = @\pcntl_fork();
            if ($pid === 0) {
                $this->setUpWorker($daemonPid, $pipes);
                $pipes = [];
                return $job;
            }
            if ($pid === -1) {
                throw new \RuntimeException('cannot start a process: ' . \pcntl_strerror(\pcntl_get_last_error()));
            }
            $worker = new WorkerProcess("$daemonPid-{$this->number}", $address->toUri($job->listener), $address->path, $pid);
            foreach (self::STREAMS as $index => $stream) {
                if ($pipes[$index] !== null) {
                    $end = $pipes[$index][0];
                    $pipes[$index][0] = self::TAKEN;
                    $worker->outputs[$stream] = new OutputPipe($end, $this->system);
                }
            }
            return $worker;
        } catch (\RuntimeException $error) {
            if ($pid > 0) {
                \posix_kill($pid, \SIGKILL);
            }
            if ($address->path !== '') {
                @\unlink($address->path);
            }
            throw $error;
        } finally {
            // Also the reading ends that nobody took, because something failed before.
            $this->closeEnds($pipes, [0, 1]);
        }
    }

    /** @param list<array{0: int, 1: int}|null> $pipes */
    private function setUpWorker(int $daemonPid, array $pipes): void
    {
        // No session of its own: where Linux shares the processors out by sessions, each worker would get as much of them as the whole gateway.
        \posix_setpgid(0, 0);
        \umask(022);
        $this->system->dieWithParent($daemonPid);
        if ($pipes[0] !== null && $pipes[1] !== null) {
            $this->system->redirectOutput($pipes[0][1], $pipes[1][1]);
            $this->closeEnds($pipes, [0]);
        }
    }

    /**
     * @param list<array{0: int, 1: int}|null> $pipes
     * @param list<int> $which 0 is a pipe's reading end, 1 its writing end
     */
    private function closeEnds(array $pipes, array $which): void
    {
        foreach ($pipes as $ends) {
            foreach ($ends === null ? [] : $which as $end) {
                if ($ends[$end] !== self::TAKEN) {
                    $this->system->close($ends[$end]);
                }
            }
        }
    }
}
