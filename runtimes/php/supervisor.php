<?php
/** The daemon's loop: control connections in, workers out. Holds no user code. Page: runtime/daemon. */

declare(strict_types=1);

namespace Fngw;

final class Daemon
{
    /** `select` watches descriptors below 1024, and each worker has two. */
    private const MAX_WORKERS = 450;
    /** Workers' ends are told by SIGCHLD. One that arrives just before the wait is noticed after this time, ms. */
    private const CHECK_MS = 1000;
    /** The same while an end is expected, ms. */
    private const WATCH_MS = 2;
    /** Longest wait without workers: nothing but a frame, a signal or the end of standard input matters then. */
    private const IDLE_SECONDS = 3600;

    private Address $address;
    /** @var resource */
    private $listener;
    private System $system;
    private bool $standalone;
    private int $memoryMb;
    /** @var array<int, Control> by socket number */
    private array $controls = [];
    /** @var array<string, WorkerProcess> by worker id */
    private array $workers = [];
    /** @var array<string, Control> by worker id */
    private array $owners = [];
    private int $workerNumber = 0;
    private bool $stopping = false;
    private ?Job $job = null;

    public function __construct(Address $address, bool $standalone, int $memoryMb)
    {
        $this->address = $address;
        $this->standalone = $standalone;
        $this->memoryMb = $memoryMb;
        $this->system = new System();
        $this->system->adoptOrphans();
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
        }
        foreach ($this->workers as $worker) {
            $worker->kill();
            self::remove($worker->socketPath);
        }
        self::remove($this->address->path);
        System::killChildren();
        return null;
    }

    private function wait(): void
    {
        $read = ['listener' => $this->listener];
        $write = [];
        if (!$this->standalone) {
            $read['stdin'] = \STDIN;
        }
        foreach ($this->controls as $number => $control) {
            $read["c$number"] = $control->socket;
            if ($control->unsent !== '') {
                $write["c$number"] = $control->socket;
            }
        }
        $timeoutMs = self::CHECK_MS;
        $now = \hrtime(true);
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
        $seconds = $this->workers === [] ? self::IDLE_SECONDS : \intdiv($timeoutMs, 1000);
        if (!@\stream_select($read, $write, $except, $seconds, $timeoutMs % 1000 * 1000)) {
            return;
        }
        foreach ($write as $name => $_) {
            $this->flush((int) \substr($name, 1));
        }
        foreach ($read as $name => $_) {
            if ($name === 'listener') {
                $this->accept();
            } elseif ($name === 'stdin') {
                $this->readStdin();
            } elseif ($name[0] === 'c') {
                $this->readControl((int) \substr($name, 1));
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
        if ($socket !== false) {
            $this->controls[(int) $socket] = new Control($socket);
        }
    }

    private function readStdin(): void
    {
        $bytes = \fread(\STDIN, READ_BYTES);
        if (($bytes === '' || $bytes === false) && \feof(\STDIN)) {
            $this->stopping = true;
        }
    }

    private function flush(int $number): void
    {
        $control = $this->controls[$number];
        $control->flush();
        if ($control->closing && $control->unsent === '') {
            $this->close($number);
        }
    }

    private function readControl(int $number): void
    {
        $control = $this->controls[$number] ?? null;
        if ($control === null) {
            return;
        }
        $bytes = @\stream_socket_recvfrom($control->socket, READ_BYTES);
        if ($bytes === '' || ($bytes === false && \feof($control->socket))) {
            $this->close($number);
            return;
        }
        if ($control->closing || $bytes === false) {
            return;
        }
        try {
            $control->reader->push($bytes);
            while (!$control->closing && $this->job === null && ($frame = $control->reader->next()) !== null) {
                $this->handleFrame($control, $frame[0], $frame[1], parseHeader($frame[2]), $frame[3]);
            }
        } catch (ProtocolError $error) {
            $this->refuse($control, $error->getMessage());
        }
    }

    /** The workers of a gateway that is gone serve nobody. */
    private function close(int $number): void
    {
        $control = $this->controls[$number];
        unset($this->controls[$number]);
        \fclose($control->socket);
        foreach ($this->owners as $id => $owner) {
            if ($owner === $control) {
                unset($this->owners[$id]);
                $this->workers[$id]->stop(0, 'control connection closed', 0);
            }
        }
    }

    /** @param array<string, mixed> $header */
    private function handleFrame(Control $control, int $kind, int $id, array $header, string $body): void
    {
        if (!$control->greeted) {
            if ($kind !== Kind::HELLO) {
                $this->refuse($control, 'the first frame must be hello');
            } elseif ($body !== \chr(PROTOCOL_VERSION)) {
                $version = $body === '' ? 'none' : \ord($body);
                $this->refuse($control, "protocol version $version is not spoken here, only " . PROTOCOL_VERSION);
            } elseif (($header['role'] ?? null) !== 'control') {
                $this->refuse($control, 'this socket serves the role control only');
            } else {
                $control->greeted = true;
                $ready = ['runtime' => 'php', 'version' => \PHP_VERSION, 'pid' => \posix_getpid()];
                $control->send(encodeFields(Kind::READY, 0, $ready));
            }
        } elseif ($kind === Kind::START) {
            $this->start($control, $id);
        } elseif ($kind === Kind::STOP) {
            $worker = $header['worker'] ?? null;
            if (\is_string($worker) && ($this->owners[$worker] ?? null) === $control) {
                $grace = $header['grace_ms'] ?? 0;
                $this->workers[$worker]->stop(\is_int($grace) ? $grace : 0, 'stopped by the gateway', \hrtime(true));
            }
        } elseif ($kind === Kind::PING) {
            $control->send(encodeFrame(Kind::PONG, $id));
        }
    }

    private function refuse(Control $control, string $message): void
    {
        $control->send(encodeFields(Kind::ERROR, 0, ['code' => 'protocol', 'message' => $message]));
        if ($control->unsent === '') {
            $this->close((int) $control->socket);
            return;
        }
        $control->closing = true;
    }

    private function start(Control $control, int $id): void
    {
        $why = $this->fork($control, $id);
        if ($why !== null) {
            $control->send(encodeFields(Kind::ERROR, $id, ['code' => 'start', 'message' => $why]));
        }
    }

    /** @return string|null why no worker could be started */
    private function fork(Control $control, int $id): ?string
    {
        if (\count($this->workers) >= self::MAX_WORKERS) {
            return 'a php daemon runs at most ' . self::MAX_WORKERS . ' workers; raise FN_RUNTIME_DAEMONS (php=2)';
        }
        $this->workerNumber += 1;
        $name = \posix_getpid() . '-' . $this->workerNumber;
        $job = new Job();
        $pipes = [$this->system->pipe(), $this->system->pipe()];
        try {
            // Bound before the fork: the gateway may connect while the worker still sets itself up.
            $socket = $this->address->forWorker($this->workerNumber, $control->socket);
            $job->listener = $socket->listen();
        } catch (\RuntimeException $error) {
            $this->closePipes($pipes);
            return $error->getMessage();
        }
        $job->socketPath = $socket->path;
        $job->system = $this->system;
        $job->memoryMb = $this->memoryMb;
        $job->daemonPid = \posix_getpid();
        $pid = @\pcntl_fork();
        if ($pid === -1) {
            $this->closePipes($pipes);
            self::remove($socket->path);
            return 'cannot start a process: ' . \pcntl_strerror(\pcntl_get_last_error());
        }
        if ($pid === 0) {
            $this->becomeWorker($job, $pipes);
            return null;
        }
        $worker = new WorkerProcess($name, $socket->toUri($job->listener), $socket->path, $pid);
        foreach (['stdout', 'stderr'] as $index => $stream) {
            if ($pipes[$index] !== null) {
                $this->system->close($pipes[$index][1]);
                $worker->outputs[$stream] = new OutputPipe($pipes[$index][0], $this->system);
            }
        }
        $this->workers[$name] = $worker;
        $this->owners[$name] = $control;
        $started = ['worker' => $name, 'uri' => $worker->uri, 'pid' => $pid];
        $control->send(encodeFields(Kind::STARTED, $id, $started));
        return null;
    }

    /** @param list<array{0: int, 1: int}|null> $pipes */
    private function closePipes(array $pipes): void
    {
        foreach ($pipes as $ends) {
            if ($ends !== null) {
                $this->system->close($ends[0]);
                $this->system->close($ends[1]);
            }
        }
    }

    /**
     * In the forked process: nothing of the daemon stays open, and its signals mean what they mean everywhere.
     *
     * @param list<array{0: int, 1: int}|null> $pipes
     */
    private function becomeWorker(Job $job, array $pipes): void
    {
        \posix_setsid();
        \umask(022);
        $this->system->dieWithParent($job->daemonPid);
        foreach ([\SIGCHLD, \SIGTERM, \SIGINT, \SIGHUP] as $signal) {
            \pcntl_signal($signal, \SIG_DFL);
        }
        if ($pipes[0] !== null && $pipes[1] !== null) {
            $this->system->redirectOutput($pipes[0][1], $pipes[1][1]);
            $this->system->close($pipes[0][0]);
            $this->system->close($pipes[1][0]);
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
        $this->job = $job;
    }

    private function readOutput(string $id, string $stream): void
    {
        $worker = $this->workers[$id];
        $text = $worker->outputs[$stream]->read(\hrtime(true));
        if ($text === null) {
            // Closed by the worker itself; its end is told by its exit.
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
        while (($pid = \pcntl_waitpid(-1, $status, \WNOHANG)) > 0) {
            foreach ($this->workers as $id => $worker) {
                if ($worker->pid === $pid) {
                    $this->handleExit($id, $worker, $status);
                    break;
                }
            }
        }
    }

    private function handleExit(string $id, WorkerProcess $worker, int $status): void
    {
        // Children it left behind in its group end with it.
        @\posix_kill(-$worker->pid, \SIGKILL);
        foreach ($worker->outputs as $stream => $output) {
            $this->sendLog($id, $stream, $output->drain());
            \fclose($output->pipe);
        }
        self::remove($worker->socketPath);
        if (isset($this->owners[$id])) {
            $this->owners[$id]->send(encodeFields(Kind::EXITED, 0, $worker->toExit($status)));
        }
        unset($this->workers[$id], $this->owners[$id]);
    }

    private function tick(int $now): void
    {
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
