<?php
/** Worker: one forked process that serves one function, one call at a time. Pages: runtime/wire-protocol, runtimes/php. */

declare(strict_types=1);

namespace Fngw;

final class Worker
{
    /** Seconds a worker waits for the gateway that asked for it. */
    private const ACCEPT_SECONDS = 15;
    /** Nanoseconds after which a call sent ahead is not begun before a look for its cancellation. */
    private const FRESH_NS = 1_000_000;
    /** Nanoseconds to wait for the gateway to close its side. */
    private const HANG_UP_NS = 500_000_000;
    /** Seconds a call may outlive its timeout before the alarm ends an orphan; only where the kernel does not do it. */
    private const ALARM_GRACE_SECONDS = 10;

    /** What the handler file returned, or threw; set by daemon.php. */
    public static mixed $returned = null;
    public static ?\Throwable $failure = null;
    /** Full path of the handler file. */
    public static string $entry = '';
    private static ?self $worker = null;

    /** @var resource */
    private $connection;
    private FrameReader $reader;
    private Capture $capture;
    private Loader $loader;
    private EventMaker $events;
    private EnvelopeMaker $envelopes;
    private \Closure $handler;
    private bool $takesParams = false;
    /** @var array<int, array{0: string, 1: string}> header text and body of calls not begun, by id, in order */
    private array $waiting = [];
    /** Id of the call that runs; 0 between calls. */
    private int $id = 0;
    private bool $loading = true;
    /** SIGTERM came: end after the call that runs. */
    private bool $ending = false;
    /** Monotonic ns of the last look at the connection. */
    private int $lookedAt = 0;
    /** Seconds after which an orphan ends itself; 0 when the kernel sees to it. */
    private int $alarmSeconds = 0;
    /** Bytes of the running stream that may still be sent before the gateway grants more. */
    private int $window = 0;
    private bool $canceled = false;

    /** @return bool true when the handler file is to be included now */
    public static function begin(?Job $job): bool
    {
        if ($job === null) {
            return false;
        }
        $connection = @\stream_socket_accept($job->listener, self::ACCEPT_SECONDS);
        \fclose($job->listener);
        if ($job->socketPath !== '') {
            @\unlink($job->socketPath);
        }
        if ($connection === false) {
            return false;
        }
        @\file_put_contents('/proc/self/oom_score_adj', '1000');
        $job->system->limitResources($job->memoryMb);
        $job->system->closeOnExec();
        if ($job->memoryMb > 0) {
            \ini_set('memory_limit', $job->memoryMb . 'M');
        }
        self::$worker = new self($connection);
        return self::$worker->readStart(!$job->system->available);
    }

    /** Serves calls until the gateway closes the connection. */
    public static function serve(): void
    {
        $worker = self::$worker;
        if ($worker !== null && $worker->finishLoading()) {
            $worker->loop();
        }
    }

    /** @param resource $connection */
    private function __construct($connection)
    {
        $this->connection = $connection;
        $this->reader = new FrameReader();
        $this->capture = new Capture(function (string $frames): void {
            $this->write($frames);
        });
    }

    private function readStart(bool $needsAlarm): bool
    {
        try {
            [$kind, , $header, $body] = $this->readFrame();
            if ($kind !== Kind::HELLO || (parseHeader($header)['role'] ?? null) !== 'worker') {
                throw new ProtocolError('the first frame must be hello with the role worker');
            }
            if ($body !== \chr(PROTOCOL_VERSION)) {
                throw new ProtocolError('only protocol version ' . PROTOCOL_VERSION . ' is spoken here');
            }
            [$kind, , $header] = $this->readFrame();
            if ($kind !== Kind::START) {
                throw new ProtocolError('the second frame must be start');
            }
            $start = parseHeader($header);
        } catch (ProtocolError $error) {
            $this->write(encodeFields(Kind::ERROR, 0, ['code' => 'protocol', 'message' => $error->getMessage()]));
            $this->hangUp();
            return false;
        }
        $context = (array) ($start['context'] ?? []);
        $env = (array) ($start['env'] ?? []);
        $this->reader->maxFrameBytes += (int) ($context['max_body_bytes'] ?? 0);
        if ($needsAlarm) {
            $this->alarmSeconds = (int) \ceil(($context['timeout_ms'] ?? 0) / 1000) + self::ALARM_GRACE_SECONDS;
        }
        $this->events = new EventMaker($env, $context);
        $this->envelopes = new EnvelopeMaker();
        @\cli_set_process_title('fngw ' . ($start['key'] ?? 'php'));
        \register_shutdown_function([$this, 'handleShutdown']);
        \pcntl_signal(\SIGTERM, [$this, 'handleTerm'], false);
        $this->capture->install();
        try {
            $this->loader = new Loader($start);
            $this->loader->prepare($env);
        } catch (\Throwable $error) {
            $this->refuse($error);
            return false;
        }
        self::$entry = $this->loader->entry;
        return true;
    }

    private function finishLoading(): bool
    {
        try {
            if (self::$failure !== null) {
                throw self::$failure;
            }
            $this->handler = $this->loader->findCallable(self::$returned);
        } catch (\Throwable $error) {
            $this->refuse($error);
            return false;
        }
        $this->takesParams = $this->loader->takesParams;
        $this->loading = false;
        $ready = ['max_inflight' => 1, 'files' => $this->loader->files()];
        $this->write($this->capture->end() . encodeFields(Kind::READY, 0, $ready));
        return true;
    }

    /** The function cannot be loaded. */
    private function refuse(\Throwable $error): void
    {
        $this->loading = false;
        $fields = Failure::describe($error, 'load');
        $this->write($this->capture->end() . encodeFields(Kind::ERROR, 0, $fields));
        $this->hangUp();
    }

    private function loop(): void
    {
        try {
            while (!$this->ending) {
                $this->sortFrames();
                while ($this->waiting !== [] && !$this->ending) {
                    foreach ($this->waiting as $id => [$header, $body]) {
                        break;
                    }
                    unset($this->waiting[$id]);
                    $this->call($id, $header, $body);
                    // A call sent ahead may have been cancelled while the one before it ran.
                    if ($this->waiting !== [] && \hrtime(true) - $this->lookedAt > self::FRESH_NS && $this->canRead()) {
                        break;
                    }
                }
                if (!$this->ending && ($this->waiting === [] || $this->canRead())) {
                    $this->read();
                }
            }
        } catch (ProtocolError $error) {
            $this->write(encodeFields(Kind::ERROR, 0, ['code' => 'protocol', 'message' => $error->getMessage()]));
        }
        $this->hangUp();
    }

    /** Takes every whole frame that is here. */
    private function sortFrames(): void
    {
        while (($frame = $this->reader->next()) !== null) {
            [$kind, $id, $header, $body] = $frame;
            if ($kind === Kind::CALL) {
                $this->waiting[$id] = [$header, $body];
            } elseif ($kind === Kind::CANCEL) {
                $this->cancel($id);
            } elseif ($kind === Kind::MORE) {
                $bytes = parseHeader($header)['bytes'] ?? 0;
                if ($id === $this->id && \is_int($bytes) && $bytes > 0) {
                    $this->window = \min($this->window + $bytes, STREAM_WINDOW_BYTES);
                }
            } elseif ($kind === Kind::PING) {
                $this->write(encodeFrame(Kind::PONG, $id));
            } elseif ($kind !== Kind::PONG) {
                throw new ProtocolError("frame kind $kind is not for a worker");
            }
        }
    }

    private function cancel(int $id): void
    {
        if (isset($this->waiting[$id])) {
            unset($this->waiting[$id]);
            $this->write(encodeFrame(Kind::END, $id, '{"canceled":true}'));
        } elseif ($id === $this->id) {
            $this->canceled = true;
        }
    }

    private function call(int $id, string $header, string $body): void
    {
        $call = parseHeader($header);
        $this->id = $id;
        $this->capture->begin($id);
        if ($this->alarmSeconds > 0) {
            \pcntl_alarm($this->alarmSeconds);
        }
        try {
            $event = $this->events->make($call, $body);
            $reply = $this->envelopes->make(
                $this->takesParams ? ($this->handler)($event, $event['params']) : ($this->handler)($event),
            );
            if ($reply->stream !== null) {
                $this->sendStream($id, $reply);
                $frames = '';
            } elseif (\strlen($reply->body) > MAX_REPLY_BODY_BYTES) {
                $this->sendLarge($id, $reply);
                $frames = '';
            } else {
                $frames = encodeFrame(Kind::REPLY, $id, $reply->header, $reply->body);
            }
        } catch (ProtocolError $error) {
            throw $error;
        } catch (ContractError $error) {
            $frames = encodeFields(Kind::ERROR, $id, ['code' => 'contract', 'message' => $error->getMessage()]);
        } catch (\Throwable $error) {
            $frames = encodeFields(Kind::ERROR, $id, Failure::describe($error, 'exception'));
        }
        // Only after the reply is written may the next call begin: a worker that dies in that one must not take this
        // reply with it, nor hold it back.
        $frames = $this->capture->end() . $frames;
        if ($frames !== '') {
            $this->write($frames);
        }
        $this->id = 0;
        if ($this->alarmSeconds > 0) {
            \pcntl_alarm(0);
        }
    }

    /** A body above 1 MiB. */
    private function sendLarge(int $id, Reply $reply): void
    {
        $bytes = \strlen($reply->body);
        $this->beginStream($id, $reply->header, ",\"length\":$bytes");
        for ($at = 0; $at < $bytes && !$this->canceled; $at += CHUNK_BYTES) {
            $this->sendChunk($id, \substr($reply->body, $at, CHUNK_BYTES));
        }
        $this->endStream($id, '');
    }

    /** A body that the handler makes piece by piece. */
    private function sendStream(int $id, Reply $reply): void
    {
        $pieces = $reply->stream;
        $reply->stream = null;
        $isEvents = \str_contains($reply->header, '"text/event-stream');
        if (!$isEvents) {
            // What it does before its first piece may still fail as a whole.
            $pieces->rewind();
        }
        $this->beginStream($id, $reply->header, '');
        try {
            while ($pieces->valid() && !$this->canceled) {
                $piece = $pieces->current();
                if (!\is_string($piece) && !\is_int($piece) && !\is_float($piece) && !$piece instanceof \Stringable) {
                    throw new ContractError('a streamed body must be made of strings, got ' . \get_debug_type($piece));
                }
                $piece = (string) $piece;
                for ($at = 0; $at < \strlen($piece) && !$this->canceled; $at += CHUNK_BYTES) {
                    $this->sendChunk($id, \strlen($piece) > CHUNK_BYTES ? \substr($piece, $at, CHUNK_BYTES) : $piece);
                }
                if (!$this->canceled) {
                    $pieces->next();
                }
            }
            // Ends the handler's `finally` blocks before the stream's end is told.
            unset($pieces);
            $problem = '';
        } catch (ProtocolError $error) {
            throw $error;
        } catch (\Throwable $error) {
            $problem = Failure::message($error);
        }
        $this->endStream($id, $problem);
    }

    private function beginStream(int $id, string $header, string $length): void
    {
        $this->window = STREAM_WINDOW_BYTES;
        $this->canceled = false;
        $this->write(encodeFrame(Kind::REPLY, $id, \substr($header, 0, -1) . ',"stream":true' . $length . '}'));
    }

    /** Waits until the gateway has room for it, then sends it, unless the stream is cancelled. */
    private function sendChunk(int $id, string $chunk): void
    {
        while (!$this->canceled && ($this->window < \strlen($chunk) || $this->canRead())) {
            $this->read();
            $this->sortFrames();
        }
        if (!$this->canceled) {
            $this->window -= \strlen($chunk);
            $this->write(encodeFrame(Kind::CHUNK, $id, '', $chunk));
        }
    }

    private function endStream(int $id, string $problem): void
    {
        if ($this->canceled) {
            $end = encodeFrame(Kind::END, $id, '{"canceled":true}');
        } else {
            $end = $problem === '' ? encodeFrame(Kind::END, $id) : encodeFields(Kind::END, $id, ['error' => $problem]);
        }
        $this->write($this->capture->end() . $end);
        $this->id = 0;
    }

    /** @internal called by PHP: the handler ended the process, or an error did */
    public function handleShutdown(): void
    {
        if ($this->id === 0 && !$this->loading) {
            return;
        }
        // Memory may be what was missing.
        \ini_set('memory_limit', '-1');
        $error = \error_get_last();
        $fatal = \E_ERROR | \E_CORE_ERROR | \E_COMPILE_ERROR | \E_PARSE | \E_USER_ERROR | \E_RECOVERABLE_ERROR;
        $fields = ['code' => $this->loading ? 'load' : 'exception'];
        if ($error !== null && ($error['type'] & $fatal) !== 0) {
            $fields += ['message' => $error['message'], 'file' => $error['file'], 'line' => $error['line']];
        } else {
            $where = $this->loading ? 'the handler file' : 'the handler';
            $fields += ['message' => "$where called exit() or die()", 'hint' => 'return a response instead'];
            $fields += ['file' => self::$entry];
        }
        // `ends`: calls sent behind this one were not begun and never will be here.
        $id = $this->id;
        $this->write($this->capture->end() . encodeFields(Kind::ERROR, $id, $fields + ['ends' => true]));
        $this->id = 0;
        $this->loading = false;
        $this->hangUp();
    }

    /** @internal called by PHP */
    public function handleTerm(): void
    {
        $this->ending = true;
    }

    /** @return array{0: int, 1: int, 2: string, 3: string} */
    private function readFrame(): array
    {
        while (($frame = $this->reader->next()) === null) {
            $this->read();
        }
        return $frame;
    }

    /** Waits for bytes. The end of the connection is the end of the worker. */
    private function read(): void
    {
        $bytes = @\stream_socket_recvfrom($this->connection, READ_BYTES);
        $this->lookedAt = \hrtime(true);
        if ($bytes !== '' && $bytes !== false) {
            $this->reader->push($bytes);
        } elseif ($bytes === '' || \feof($this->connection)) {
            $this->leave();
        }
        // Otherwise a signal interrupted the wait.
    }

    private function canRead(): bool
    {
        $this->lookedAt = \hrtime(true);
        $read = [$this->connection];
        $write = $except = null;
        return @\stream_select($read, $write, $except, 0, 0) === 1;
    }

    private function write(string $bytes): void
    {
        $sent = @\stream_socket_sendto($this->connection, $bytes);
        while ($sent !== \strlen($bytes)) {
            if ($sent > 0) {
                $bytes = \substr($bytes, $sent);
            } elseif (\feof($this->connection)) {
                $this->leave();
            }
            $sent = @\stream_socket_sendto($this->connection, $bytes);
        }
    }

    /**
     * Lets the gateway read what was said last: closing a connection with unread calls on it would reset it, and the
     * gateway could lose frames that it has not read yet.
     */
    private function hangUp(): void
    {
        @\stream_socket_shutdown($this->connection, \STREAM_SHUT_WR);
        $until = \hrtime(true) + self::HANG_UP_NS;
        while (($left = $until - \hrtime(true)) > 0) {
            $read = [$this->connection];
            $write = $except = null;
            if (@\stream_select($read, $write, $except, 0, \intdiv($left, 1000)) === 1) {
                $bytes = @\stream_socket_recvfrom($this->connection, READ_BYTES);
                if ($bytes === '' || $bytes === false) {
                    return;
                }
            }
        }
    }

    /** Nobody listens any more. */
    private function leave(): void
    {
        $this->id = 0;
        $this->loading = false;
        exit(0);
    }
}

/** What a handler or its file threw, as the fields of an `error` frame. */
final class Failure
{
    /** Longest message and stack, bytes. */
    private const MAX_TEXT_BYTES = 16 * 1024;

    /** @return array<string, mixed> */
    public static function describe(\Throwable $error, string $code): array
    {
        $fields = ['code' => $code, 'message' => self::message($error)];
        $fields += ['file' => $error->getFile(), 'line' => $error->getLine()];
        $hint = $error instanceof LoadError ? $error->hint : '';
        if ($hint !== '') {
            $fields['hint'] = $hint;
        }
        return $error instanceof LoadError ? $fields : $fields + ['stack' => self::stack($error)];
    }

    public static function message(\Throwable $error): string
    {
        $message = $error->getMessage() === '' ? \get_class($error) : $error->getMessage();
        return \substr($message, 0, self::MAX_TEXT_BYTES);
    }

    /** Frames of user code; those of this runtime say nothing to a function's author. */
    private static function stack(\Throwable $error): string
    {
        $lines = [];
        for ($cause = $error; $cause !== null && \count($lines) < 100; $cause = $cause->getPrevious()) {
            $start = $cause === $error ? '' : 'caused by ';
            $lines[] = $start . \get_class($cause) . ': ' . $cause->getMessage();
            $lines[] = "    at {$cause->getFile()}:{$cause->getLine()}";
            foreach (\array_slice($cause->getTrace(), 0, 50) as $frame) {
                if (isset($frame['file']) && !Loader::isOwn($frame['file'])) {
                    $name = ($frame['class'] ?? '') . ($frame['type'] ?? '') . $frame['function'];
                    $lines[] = "    at {$frame['file']}:{$frame['line']} ($name)";
                }
            }
        }
        return \substr(\implode("\n", $lines), 0, self::MAX_TEXT_BYTES);
    }
}
