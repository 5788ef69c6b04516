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
    /** Seconds a call may outlive its timeout before the alarm ends an orphan; only where the kernel does not do it. */
    private const ALARM_GRACE_SECONDS = 10;

    /** What the handler file returned, or threw; set by daemon.php. */
    public static mixed $returned = null;
    public static ?\Throwable $failure = null;
    /** Full path of the handler file. */
    public static string $entry = '';
    private static ?self $worker = null;

    private Link $link;
    private Capture $capture;
    private Loader $loader;
    private Sources $sources;
    private Failure $failures;
    /** Megabytes the worker may allocate, 0 for no limit. */
    private int $memoryMb;
    /** True where somebody edits the files: what calls include is told. */
    private bool $isWatched = false;
    private EventMaker $events;
    private EnvelopeMaker $envelopes;
    private \Closure $handler;
    private bool $takesParams = false;
    /** @var array<int, array{0: string, 1: string}> header text and body of calls not begun, by id, in order */
    private array $waiting = [];
    /** Id of the call that runs; 0 between calls. */
    private int $id = 0;
    private ?Stream $stream = null;
    private bool $loading = true;
    private bool $isDebugged = false;
    /** SIGTERM came: end after the call that runs. */
    private bool $ending = false;
    /** Seconds after which an orphan ends itself; 0 when the kernel sees to it. */
    private int $alarmSeconds = 0;

    /** @return bool true when the handler file is to be included now */
    public static function begin(?Job $job): bool
    {
        if ($job === null) {
            return false;
        }
        $link = Link::accept($job->listener, self::ACCEPT_SECONDS);
        \fclose($job->listener);
        if ($job->socketPath !== '') {
            @\unlink($job->socketPath);
        }
        if ($link === null) {
            return false;
        }
        @\file_put_contents('/proc/self/oom_score_adj', '1000');
        $job->system->limitResources($job->memoryMb);
        $job->system->closeOnExec();
        if ($job->memoryMb > 0) {
            \ini_set('memory_limit', $job->memoryMb . 'M');
        }
        self::$worker = new self($link, $job->memoryMb);
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

    private function __construct(Link $link, int $memoryMb)
    {
        $this->link = $link;
        $this->memoryMb = $memoryMb;
        $this->capture = new Capture(static function (string $frames) use ($link): void {
            $link->write($frames);
        });
    }

    private function readStart(bool $needsAlarm): bool
    {
        try {
            $frame = $this->link->readFrame();
            if ($frame === null) {
                return false;
            }
            if ($frame[0] !== Kind::START) {
                throw new ProtocolError('the second frame must be start');
            }
            $start = parseHeader($frame[2]);
            self::checkStart($start);
        } catch (ProtocolError $error) {
            $this->link->refuse($error);
            return false;
        }
        $context = (array) ($start['context'] ?? []);
        $env = (array) ($start['env'] ?? []);
        $this->link->reader->allowBodies(\max(0, (int) ($context['max_body_bytes'] ?? 0)));
        if ($needsAlarm) {
            $this->alarmSeconds = (int) \ceil(($context['timeout_ms'] ?? 0) / 1000) + self::ALARM_GRACE_SECONDS;
        }
        $this->events = new EventMaker($env, $context);
        $this->envelopes = new EnvelopeMaker();
        @\cli_set_process_title('fngw ' . ($start['key'] ?? 'php'));
        $this->isWatched = ($start['production'] ?? null) !== true;
        $this->sources = new Sources((string) ($start['root'] ?? $start['dir'] ?? ''));
        $this->failures = new Failure($this->sources);
        \register_shutdown_function([$this, 'handleShutdown']);
        \pcntl_signal(\SIGTERM, [$this, 'handleTerm'], false);
        $this->capture->install();
        try {
            $this->loader = new Loader($start, $this->sources);
            $this->loader->prepare($env);
        } catch (\Throwable $error) {
            $this->refuse($error);
            return false;
        }
        self::$entry = $this->loader->entry;
        $this->letDebuggerIn($start['debug'] ?? null);
        return true;
    }

    /** @param mixed $debug in development: `port` at which the gateway waits for Xdebug */
    private function letDebuggerIn(mixed $debug): void
    {
        $port = \is_array($debug) ? $debug['port'] ?? null : null;
        if (!\is_int($port)) {
            return;
        }
        if (!\function_exists('xdebug_connect_to_client')) {
            \error_log('cannot debug: PHP has no Xdebug; install php-xdebug');
            return;
        }
        $this->isDebugged = true;
        \ini_set('xdebug.client_host', '127.0.0.1');
        \ini_set('xdebug.client_port', (string) $port);
        $this->link->write(encodeFields(Kind::LOADED, 0, ['files' => [], 'debugger' => ['pid' => \posix_getpid()]]));
        \xdebug_connect_to_client();
    }

    /**
     * Which names a function is looked for by is the gateway's to say.
     *
     * @param array<string, mixed> $start
     * @throws ProtocolError
     */
    private static function checkStart(array $start): void
    {
        $names = ((array) ($start['callable'] ?? []))['names'] ?? null;
        if (!\is_array($names) || $names === [] || \array_filter($names, '\is_string') !== \array_values($names)) {
            throw new ProtocolError('start must have callable.names, a list of symbols to look for');
        }
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
        self::$returned = null;
        if ($this->isDebugged) {
            $handler = $this->handler;
            $this->handler = static function (mixed ...$given) use ($handler): mixed {
                // The editor may have begun to listen since.
                if (!\xdebug_is_debugger_active()) {
                    \xdebug_connect_to_client();
                }
                return $handler(...$given);
            };
        }
        $this->takesParams = $this->loader->takesParams;
        $this->loading = false;
        $ready = ['max_inflight' => 1, 'files' => filesThatFit($this->sources->takeNew())];
        $this->link->write($this->capture->end() . encodeFields(Kind::READY, 0, $ready));
        return true;
    }

    /** The function cannot be loaded. */
    private function refuse(\Throwable $error): void
    {
        $this->loading = false;
        $this->link->write($this->capture->end() . encodeError(0, $this->failures->describeLoad($error)));
        $this->link->hangUp();
    }

    private function loop(): void
    {
        try {
            while (!$this->ending && !$this->link->isClosed) {
                $this->sortFrames();
                while ($this->waiting !== [] && !$this->ending) {
                    foreach ($this->waiting as $id => [$header, $body]) {
                        break;
                    }
                    unset($this->waiting[$id]);
                    $this->call($id, $header, $body);
                    $body = '';
                    // A call sent ahead may have been cancelled while the one before it ran.
                    $isStale = \hrtime(true) - $this->link->lookedAt > self::FRESH_NS;
                    if ($isStale && $this->waiting !== [] && $this->link->canRead()) {
                        break;
                    }
                }
                if (!$this->ending) {
                    $this->link->read();
                }
            }
        } catch (ProtocolError $error) {
            $this->link->refuse($error);
        } catch (HungUp) {
            return;
        }
        $this->link->hangUp();
    }

    /** Takes every whole frame that is here. */
    private function sortFrames(): void
    {
        while (($frame = $this->link->reader->next()) !== null) {
            [$kind, $id, $header, $body] = $frame;
            if ($kind === Kind::CALL) {
                $this->waiting[$id] = [$header, $body];
            } elseif ($kind === Kind::CANCEL) {
                $this->cancel($id);
            } elseif ($kind === Kind::MORE) {
                if ($id === $this->id && $this->stream !== null) {
                    $this->stream->grant(parseHeader($header)['bytes'] ?? 0);
                }
            } elseif ($kind === Kind::PING) {
                $this->link->write(encodeFrame(Kind::PONG, $id));
            } elseif ($kind !== Kind::PONG) {
                throw new ProtocolError("frame kind $kind is not for a worker");
            }
        }
    }

    private function cancel(int $id): void
    {
        if (isset($this->waiting[$id])) {
            unset($this->waiting[$id]);
            $this->link->write(encodeFrame(Kind::END, $id, '{"canceled":true}'));
        } elseif ($id === $this->id && $this->stream !== null) {
            $this->stream->canceled = true;
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
        $rest = '';
        try {
            $event = $this->events->make($call, $body);
            $this->envelopes->remember($event['body_base64'], $body);
            $reply = $this->envelopes->make(
                $this->takesParams ? ($this->handler)($event, $event['params']) : ($this->handler)($event),
            );
            $bytes = \strlen($reply->body);
            if ($reply->stream !== null || $bytes > MAX_REPLY_BODY_BYTES) {
                $frame = $this->stream($id, $reply);
            } elseif ($bytes < LARGE_BYTES) {
                $frame = encodeFrame(Kind::REPLY, $id, $reply->header, $reply->body);
            } else {
                $frame = encodeHead(Kind::REPLY, $id, $reply->header, $bytes);
                $rest = $reply->body;
            }
        } catch (ProtocolError | HungUp $error) {
            throw $error;
        } catch (ContractError $error) {
            $frame = encodeError($id, ['code' => 'contract', 'message' => Failure::message($error)]);
        } catch (\Throwable $error) {
            $frame = encodeError($id, $this->failures->describe($error, 'exception'));
        }
        // Only after the reply is written may the next call begin: a worker that dies in that one must not take this
        // reply with it, nor hold it back.
        $this->link->write($this->capture->end() . $frame);
        if ($rest !== '') {
            $this->link->write($rest);
        }
        $this->envelopes->forget();
        if ($this->isWatched && $this->sources->hasGrown()) {
            $this->tellLoaded();
        }
        $this->id = 0;
        if ($this->alarmSeconds > 0) {
            \pcntl_alarm(0);
        }
    }

    private function tellLoaded(): void
    {
        $files = $this->sources->takeNew();
        if ($files !== []) {
            $this->link->write(encodeFields(Kind::LOADED, 0, ['files' => filesThatFit($files)]));
        }
    }

    /** @return string the frame that ends it */
    private function stream(int $id, Reply $reply): string
    {
        $this->stream = new Stream($this->link, $id, function (): void {
            $this->sortFrames();
        });
        try {
            $pieces = $reply->stream;
            // The only reference goes along: the generator ends, and runs its `finally` blocks, before the call does.
            $reply->stream = null;
            return $pieces === null
                ? $this->stream->sendLarge($reply->header, $reply->body)
                : $this->stream->sendPieces($reply->header, self::take($pieces));
        } finally {
            $this->stream = null;
        }
    }

    private static function take(?\Generator &$pieces): \Generator
    {
        [$taken, $pieces] = [$pieces, null];
        return $taken;
    }

    /** @internal called by PHP: the handler ended the process, or an error did */
    public function handleShutdown(): void
    {
        if (($this->id === 0 && !$this->loading) || $this->link->isClosed) {
            return;
        }
        // The limit of memory may be what ended the script, and telling so takes some.
        \ini_set('memory_limit', '-1');
        // `ends`: calls sent behind this one were not begun and never will be here.
        $fields = $this->failures->describeEnd($this->loading, self::$entry, $this->memoryMb) + ['ends' => true];
        $id = $this->id;
        $this->link->write($this->capture->end() . encodeError($id, $fields));
        $this->id = 0;
        $this->loading = false;
        $this->link->hangUp();
    }

    /** @internal called by PHP */
    public function handleTerm(): void
    {
        $this->ending = true;
    }
}
