<?php
/**
 * Daemon: starts worker processes on request of a gateway and tells it their ends and output. Holds no user code, so it
 * never hangs. Pages: runtime/daemon, runtimes/php.
 *
 *   php daemon.php --socket <path | unix:path | tcp://host:port> --index <n> --root <functions root> [--standalone]
 *   FNGW_WORKER_MEMORY_MB=<n>  megabytes a worker may allocate; 0 or unset: no limit
 */

declare(strict_types=1);

namespace Fngw;

require __DIR__ . '/start.php';
checkPhp();
require __DIR__ . '/system.php';
startAgain(new System(), $argv);

require __DIR__ . '/wire.php';
require __DIR__ . '/address.php';
require __DIR__ . '/output.php';
require __DIR__ . '/guard.php';
require __DIR__ . '/user.php';
require __DIR__ . '/process.php';
require __DIR__ . '/control.php';
require __DIR__ . '/offer.php';
require __DIR__ . '/trouble.php';
// What a worker needs is loaded here, once, and shared by every fork.
require __DIR__ . '/capture.php';
require __DIR__ . '/error-log.php';
require __DIR__ . '/event.php';
require __DIR__ . '/envelope.php';
require __DIR__ . '/sources.php';
require __DIR__ . '/loader.php';
require __DIR__ . '/failure.php';
require __DIR__ . '/memory.php';
require __DIR__ . '/link.php';
require __DIR__ . '/stream.php';
require __DIR__ . '/worker.php';

/** One loop over the listening socket, control connections, workers' output and ends, and standard input. */
final class Daemon
{
    /** `select` watches descriptors below 1024, and each worker has two. */
    private const MAX_WORKERS = 450;
    /** Workers' ends are told by SIGCHLD. One that arrives just before the wait is noticed after this time, ms. */
    private const CHECK_MS = 1000;
    /** The same while an end is expected, ms. */
    private const WATCH_MS = 2;
    /** Time without accepting after one failed, ms. */
    private const ACCEPT_PAUSE_MS = 50;
    /** Longest wait without workers: nothing but a frame, a signal or the end of standard input matters then. */
    private const IDLE_SECONDS = 3600;

    private Address $address;
    /** @var resource */
    private $listener;
    private Forker $forker;
    private bool $standalone;
    private int $memoryMb;
    /** @var array<int, Control> by socket number */
    private array $controls = [];
    /** @var array<string, WorkerProcess> by worker id */
    private array $workers = [];
    /** @var array<string, Control> by worker id */
    private array $owners = [];
    private bool $stopping = false;
    /** Monotonic ns before which no connection is accepted. */
    private int $acceptAt = 0;
    private ?Job $job = null;
    private Offer $offer;
    private Trouble $trouble;

    public function __construct(Address $address, bool $standalone, int $memoryMb)
    {
        $this->address = $address;
        $this->standalone = $standalone;
        $this->memoryMb = $memoryMb;
        $this->offer = new Offer();
        $this->trouble = new Trouble();
        $system = new System();
        $system->adoptOrphans();
        $this->forker = new Forker($address, $system, $memoryMb);
        $this->listener = $address->listen();
        \pcntl_async_signals(true);
        $end = function (): void {
            $this->stopping = true;
        };
        \pcntl_signal(\SIGCHLD, static function (): void {
        });
        \pcntl_signal(\SIGTERM, $end);
        // Ctrl-C of a terminal reaches the whole group; under a gateway the end of standard input tells the rest.
        \pcntl_signal(\SIGINT, $standalone ? $end : \SIG_IGN);
        \pcntl_signal(\SIGHUP, \SIG_IGN);
    }

    /** Serves until it is stopped. @return Job|null what to go on with in a forked worker; null in the daemon itself */
    public function run(): ?Job
    {
        while (!$this->stopping) {
            $this->wait();
            if ($this->job !== null) {
                return $this->job;
            }
            $this->reap();
            $this->tick(\hrtime(true));
            if ($this->job !== null) {
                return $this->job;
            }
        }
        foreach ($this->workers as $worker) {
            $worker->kill();
            self::remove($worker->socketPath);
        }
        self::remove($this->address->path);
        System::killChildren();
        $folder = \dirname($this->address->path);
        // The private folder of a gateway that is gone, once the last daemon in it has ended.
        if (!$this->standalone && \preg_match('/^fngw-[A-Za-z0-9]{6}$/D', \basename($folder)) === 1) {
            @\rmdir($folder);
        }
        return null;
    }

    private function wait(): void
    {
        $now = \hrtime(true);
        $timeoutMs = self::CHECK_MS;
        $read = $write = [];
        if ($this->acceptAt <= $now) {
            $read['listener'] = $this->listener;
        } else {
            $timeoutMs = self::ACCEPT_PAUSE_MS;
        }
        if (!$this->standalone) {
            $read['stdin'] = \STDIN;
        }
        if ($this->offer->dueAt !== 0) {
            $timeoutMs = \min($timeoutMs, \max(0, \intdiv($this->offer->dueAt - $now, 1_000_000)) + 1);
        }
        foreach ($this->controls as $number => $control) {
            $read["c$number"] = $control->socket;
            if ($control->unsent !== '') {
                $write["c$number"] = $control->socket;
            }
        }
        foreach ($this->workers as $id => $worker) {
            if ($worker->killAt !== 0) {
                $timeoutMs = \min($timeoutMs, 10);
            }
            if ($worker->watchUntil > $now) {
                $timeoutMs = self::WATCH_MS;
            }
            foreach ($worker->outputs as $stream => $output) {
                if (!$output->isPaused()) {
                    $read["$stream $id"] = $output->pipe;
                }
                if ($output->windowEnd !== 0) {
                    $timeoutMs = \min($timeoutMs, 50);
                }
            }
        }
        $except = null;
        // Interrupted by a signal it warns and answers false; the caller then looks what the signal was about.
        // One that waits for a function ends unnoticed by nobody: its gateway is connected to it.
        $busy = \count($this->workers) - ($this->offer->isWaiting() ? 1 : 0);
        $isIdle = $busy === 0 && $this->offer->dueAt === 0 && isset($read['listener']);
        $seconds = $isIdle ? self::IDLE_SECONDS : \intdiv($timeoutMs, 1000);
        if (!@\stream_select($read, $write, $except, $seconds, $timeoutMs % 1000 * 1000)) {
            return;
        }
        foreach ($write as $name => $_) {
            ($this->controls[(int) \substr($name, 1)] ?? null)?->flush();
        }
        foreach ($read as $name => $_) {
            if ($name === 'listener') {
                $this->accept();
            } elseif ($name === 'stdin') {
                $this->readStdin();
            } elseif ($name[0] === 'c') {
                ($this->controls[(int) \substr($name, 1)] ?? null)?->read();
            } else {
                [$stream, $id] = \explode(' ', $name, 2);
                $this->readOutput($id, $stream);
            }
            if ($this->job !== null) {
                return;
            }
        }
    }

    private function accept(): void
    {
        $socket = @\stream_socket_accept($this->listener, 0);
        if ($socket === false) {
            // No descriptor left: the peer still waits, and asking again at once would be a busy loop.
            $this->acceptAt = \hrtime(true) + self::ACCEPT_PAUSE_MS * 1_000_000;
            return;
        }
        $this->controls[(int) $socket] = new Control($socket, $this);
    }

    private function readStdin(): void
    {
        $bytes = \fread(\STDIN, READ_BYTES);
        if (($bytes === '' || $bytes === false) && \feof(\STDIN)) {
            $this->stopping = true;
        }
    }

    /** The workers of a gateway that is gone serve nobody. @internal called by Control */
    public function close(Control $control): void
    {
        unset($this->controls[(int) $control->socket]);
        $this->offer->forgetTaker($control);
        \fclose($control->socket);
        foreach ($this->owners as $id => $owner) {
            if ($owner === $control) {
                unset($this->owners[$id]);
                $this->workers[$id]->stop(0, 'control connection closed', 0);
            }
        }
    }

    /** True when the process is a worker by now, and no frame of a control connection is its business. */
    public function hasForked(): bool
    {
        return $this->job !== null;
    }

    /**
     * Starts a worker and answers `started` or `error`.
     *
     * @param array<string, mixed> $header of the `start`
     * @internal called by Control
     */
    public function start(Control $control, int $id, array $header): void
    {
        if (\is_string($header['worker'] ?? null)) {
            $this->giveOffered($control, $id, $header['worker']);
            return;
        }
        $this->offer->plan();
        if (\count($this->workers) >= self::MAX_WORKERS) {
            $most = self::MAX_WORKERS;
            $this->refuseStart($control, $id, "a php daemon runs at most $most workers; raise FN_RUNTIME_DAEMONS (php=2)");
            return;
        }
        try {
            $user = User::parse($header);
            $worker = $this->fork($control);
        } catch (\RuntimeException $error) {
            $this->refuseStart($control, $id, $error->getMessage());
            return;
        }
        if ($worker instanceof Job) {
            $this->become($worker, $user);
            return;
        }
        $worker->uid = $user?->uid;
        $this->own($worker, $control);
        self::tellStarted($control, $id, $worker, []);
    }

    /** The worker that the gateway is connected to already. */
    private function giveOffered(Control $control, int $id, string $worker): void
    {
        $offered = $this->offer->give($control, $worker);
        if ($offered === null) {
            $this->refuseStart($control, $id, 'the worker that waited has ended');
            return;
        }
        self::tellStarted($control, $id, $offered, []);
    }

    /** @internal called by Control of a gateway that takes workers which wait for their function */
    public function meet(Control $control): void
    {
        if ($this->address->path !== '') {
            $this->offer->begin($control);
        }
    }

    /** Forks a worker without a function, and tells the gateway, which connects to it at once. */
    private function offer(Control $control): void
    {
        if (\count($this->workers) >= self::MAX_WORKERS) {
            return;
        }
        try {
            $worker = $this->fork($control);
        } catch (\RuntimeException $error) {
            // The next `start` will say so, if it still holds.
            return;
        }
        if ($worker instanceof Job) {
            $this->become($worker, null);
            return;
        }
        $this->offer->wait($worker);
        $this->own($worker, $control);
        self::tellStarted($control, 0, $worker, ['entries' => []]);
    }

    private function become(Job $job, ?User $user): void
    {
        $this->leaveToWorker();
        $job->guard($user);
        $this->job = $job;
    }

    private function own(WorkerProcess $worker, Control $control): void
    {
        $this->workers[$worker->id] = $worker;
        $this->owners[$worker->id] = $control;
    }

    /** @param array<string, mixed> $more */
    private static function tellStarted(Control $control, int $id, WorkerProcess $worker, array $more): void
    {
        $started = ['worker' => $worker->id, 'uri' => $worker->uri, 'pid' => $worker->pid] + $more;
        $control->send(encodeFields(Kind::STARTED, $id, $started));
    }

    /** @return WorkerProcess|Job */
    private function fork(Control $control)
    {
        try {
            $worker = $this->forker->fork($control->socket);
        } catch (\RuntimeException $error) {
            $this->setTrouble($error->getMessage());
            throw $error;
        }
        // The forked process has nothing to tell of the daemon.
        if (!($worker instanceof Job)) {
            $this->setTrouble(null);
        }
        return $worker;
    }

    private function setTrouble(?string $trouble): void
    {
        if (!$this->trouble->set($trouble)) {
            return;
        }
        foreach ($this->controls as $control) {
            $control->pong(0);
        }
    }

    /**
     * Why no process could be started last, null while they can.
     *
     * @internal called by Control
     */
    public function trouble(): ?string
    {
        return $this->trouble->reason();
    }

    /** @internal called by Control */
    public function stop(Control $control, string $worker, int $graceMs): void
    {
        if (($this->owners[$worker] ?? null) === $control) {
            $this->workers[$worker]->stop($graceMs, 'stopped by the gateway', \hrtime(true));
        }
    }

    private function refuseStart(Control $control, int $id, string $why): void
    {
        $control->send(encodeError($id, ['code' => 'start', 'message' => $why]));
    }

    /** In the forked process: nothing of the daemon stays open, and its signals mean what they mean everywhere. */
    private function leaveToWorker(): void
    {
        foreach ([\SIGCHLD, \SIGTERM, \SIGINT, \SIGHUP] as $signal) {
            \pcntl_signal($signal, \SIG_DFL);
        }
        \fclose($this->listener);
        foreach ($this->controls as $control) {
            \fclose($control->socket);
        }
        foreach ($this->workers as $worker) {
            foreach ($worker->outputs as $output) {
                \fclose($output->pipe);
            }
        }
        $this->controls = $this->workers = $this->owners = [];
        $this->offer = new Offer();
    }

    private function readOutput(string $id, string $stream): void
    {
        $worker = $this->workers[$id];
        $text = $worker->outputs[$stream]->read(\hrtime(true));
        if ($text === null) {
            // The worker has closed the pipe itself. That it ended is told when it exits.
            \fclose($worker->outputs[$stream]->pipe);
            unset($worker->outputs[$stream]);
            $worker->watch();
            return;
        }
        $this->sendLog($id, $stream, $text);
    }

    private function sendLog(string $id, string $stream, string $text): void
    {
        if (isset($this->owners[$id])) {
            $this->owners[$id]->sendLog($id, $stream, $text);
        }
    }

    /** Tells the ends of workers, each once. */
    private function reap(): void
    {
        while (($pid = \pcntl_waitpid(-1, $status, \WNOHANG, $usage)) > 0) {
            foreach ($this->workers as $id => $worker) {
                if ($worker->pid === $pid) {
                    $peakKib = (int) (((array) $usage)['ru_maxrss'] ?? 0);
                    $this->handleExit($id, $worker, $worker->toExit($status, $peakKib, $this->memoryMb));
                    break;
                }
            }
        }
    }

    /** @param array<string, mixed> $exit fields of `exited` */
    private function handleExit(string $id, WorkerProcess $worker, array $exit): void
    {
        // Children it left behind in its group end with it.
        User::asEach($worker->uid, static fn() => @\posix_kill(-$worker->pid, \SIGKILL));
        foreach ($worker->outputs as $stream => $output) {
            $this->sendLog($id, $stream, $output->drain());
            \fclose($output->pipe);
        }
        $pids = \array_map(static fn(WorkerProcess $one) => $one->pid, $this->workers);
        // What it started in sessions of their own has become this process's by its end.
        System::killChildren(\array_flip($pids));
        self::remove($worker->socketPath);
        if (isset($this->owners[$id])) {
            $this->owners[$id]->send(encodeFields(Kind::EXITED, 0, $exit));
        }
        unset($this->workers[$id], $this->owners[$id]);
        $this->offer->forgetWorker($worker);
    }

    private function tick(int $now): void
    {
        $taker = $this->offer->takeDue($now);
        if ($taker !== null) {
            $this->offer($taker);
            if ($this->job !== null) {
                return;
            }
        }
        foreach ($this->workers as $id => $worker) {
            if ($worker->killAt !== 0 && $worker->killAt <= $now) {
                $worker->kill();
            }
            foreach ($worker->outputs as $stream => $output) {
                if ($output->windowEnd !== 0 && $output->windowEnd <= $now) {
                    $this->sendLog($id, $stream, $output->renew());
                }
            }
        }
    }

    private static function remove(string $path): void
    {
        if ($path !== '') {
            @\unlink($path);
        }
    }
}

/** @return Job|null null in the daemon, after its end */
function runDaemon(): ?Job
{
    $flags = \getopt('', ['socket:', 'index:', 'root:', 'standalone']);
    try {
        if (!\is_string($flags['socket'] ?? null)) {
            throw new \RuntimeException('--socket is missing: give a path, unix:<path> or tcp://<host>:<port>');
        }
        $address = Address::parse($flags['socket']);
        // Both names are in use among the daemons.
        $memory = \getenv('FNGW_WORKER_MEMORY_MB') ?: \getenv('FNGW_MEMORY_MB') ?: '0';
        if (\preg_match('/^\d{1,7}$/D', $memory) !== 1) {
            throw new \RuntimeException("FNGW_WORKER_MEMORY_MB must be a whole number of megabytes, got \"$memory\"");
        }
        return (new Daemon($address, isset($flags['standalone']), (int) $memory))->run();
    } catch (\RuntimeException $error) {
        \fwrite(\STDERR, $error->getMessage() . "\n");
        exit(1);
    }
}

if (Worker::begin(runDaemon())) {
    // Included here and not in a function: the variables of a handler file's top level are globals.
    try {
        Worker::$returned = include Worker::$entry;
    } catch (\Throwable $failure) {
        Worker::$failure = $failure;
        unset($failure);
    }
    Worker::serve();
}
