<?php
/** A worker process as its daemon sees it: output within a budget, stop, kill, end. Page: runtime/daemon. */

declare(strict_types=1);

namespace Fngw;

/** Output of one descriptor of a worker, passed on within a budget. */
final class OutputPipe
{
    /** Bytes of one stream that are passed on per second; the rest is dropped with a note. */
    private const PASSED_PER_SECOND = 256 * 1024;
    /** Bytes that are read per second: a flood slows its writer, not the daemon. */
    private const READ_PER_SECOND = 16 * 1024 * 1024;
    public const WINDOW_NS = 100_000_000;
    private const PASSED_PER_WINDOW = self::PASSED_PER_SECOND / 10;
    private const READ_PER_WINDOW = self::READ_PER_SECOND / 10;

    /** @var resource */
    public $pipe;
    /** Monotonic ns at which the current window ends; 0 when nothing was read in it. */
    public int $windowEnd = 0;
    private int $windowBytes = 0;
    private int $dropped = 0;
    private string $partial = '';

    public function __construct(int $descriptor, System $system)
    {
        $pipe = \fopen("php://fd/$descriptor", 'r');
        $system->close($descriptor);
        if ($pipe === false) {
            throw new \RuntimeException('cannot open an output pipe: too many open files?');
        }
        \stream_set_blocking($pipe, false);
        \stream_set_read_buffer($pipe, 0);
        $this->pipe = $pipe;
    }

    public function isPaused(): bool
    {
        return $this->windowBytes >= self::READ_PER_WINDOW;
    }

    /** @return string|null text to pass on, may be ''; null when the stream has ended */
    public function read(int $now): ?string
    {
        $bytes = \fread($this->pipe, READ_BYTES);
        if ($bytes === '' || $bytes === false) {
            return \feof($this->pipe) ? null : '';
        }
        if ($this->windowEnd === 0) {
            $this->windowEnd = $now + self::WINDOW_NS;
        }
        $this->windowBytes += \strlen($bytes);
        if ($this->windowBytes > self::PASSED_PER_WINDOW) {
            $this->dropped += \strlen($bytes);
            return '';
        }
        return $this->toText($bytes);
    }

    /** Ends the window. @return string a note of what was dropped in it, or '' */
    public function renew(): string
    {
        $note = $this->dropped > 0 ? "[{$this->dropped} bytes of output dropped]\n" : '';
        $this->windowEnd = 0;
        $this->windowBytes = 0;
        $this->dropped = 0;
        return $note;
    }

    /** What is left when the worker has ended. */
    public function drain(): string
    {
        $text = '';
        for ($reads = 0; $reads < 4; $reads++) {
            $more = $this->read(0);
            if ($more === null || $more === '') {
                break;
            }
            $text .= $more;
        }
        $text .= toUtf8($this->partial);
        $this->partial = '';
        return $text . $this->renew();
    }

    /** Holds back a character that is cut by the end of a read. */
    private function toText(string $bytes): string
    {
        $bytes = $this->partial . $bytes;
        $this->partial = '';
        if (\preg_match('/(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})$/D', $bytes, $cut) === 1) {
            $this->partial = $cut[0];
            $bytes = \substr($bytes, 0, -\strlen($cut[0]));
        }
        return toUtf8($bytes);
    }
}

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

    /** @return array{worker: string, code: ?int, signal: ?string, reason: string} fields of `exited` */
    public function toExit(int $status): array
    {
        $code = \pcntl_wifexited($status) ? \pcntl_wexitstatus($status) : null;
        $number = \pcntl_wifsignaled($status) ? \pcntl_wtermsig($status) : 0;
        $signal = $number === 0 ? null : self::SIGNALS[$number] ?? "signal $number";
        $reason = $this->reason ?? ($signal === null ? "exited with code $code" : "ended by $signal");
        return ['worker' => $this->id, 'code' => $code, 'signal' => $signal, 'reason' => $reason];
    }

    private function signal(int $signal): void
    {
        // The group takes the worker's children along. A worker that was forked this instant may have no group yet.
        if (!@\posix_kill(-$this->pid, $signal)) {
            @\posix_kill($this->pid, $signal);
        }
    }
}
