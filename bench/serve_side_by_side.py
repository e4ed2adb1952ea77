#!/usr/bin/env python3
"""Two OpenAI-compatible servers under the same load, alternately on the same cores: A B A B ...

  bench/serve_side_by_side.py --load build/release/bin/mlxcel \
      --server 'llama=llama-server -m MODEL.gguf --host 127.0.0.1 --port {port} -t 2 -np 16 -c 16384 --no-webui' \
      --server 'mlxcel=build/release/bin/mlxcel-server -m MODEL.gguf --port {port} -t 2 -np 16'

The load is `mlxcel bench serve`; the first server is the reference of the ratios. Cells: clients x (own prompts, shared
prefix), then the gaps between the tokens of one stream while another request's 2,000-token prompt is computed, against the same
stream alone. Medians over the rounds; ratios are taken within a round. Give the same server twice for a null arm.
Needs python3 and nothing else.
"""
import argparse, json, random, shlex, socket, statistics, subprocess, sys, threading, time, urllib.request

WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have from or had an they which "
         "one you were all her she there their we him been has when who will no more if out so up said what").split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, spec):
        self.name, command = spec.split("=", 1)
        self.port = free_port()
        self.log = open(f"/tmp/side_by_side_{self.name}_{self.port}.log", "w")
        self.process = subprocess.Popen(shlex.split(command.format(port=self.port)), stdout=self.log, stderr=self.log)
        self.url = f"http://127.0.0.1:{self.port}"
        for _ in range(1200):
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended: see {self.log.name}")
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=2).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{self.name} is not ready")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def run_load(load, server, clients, requests, prompt, gen, shared, seed):
    words = [load, "bench", "serve", "--server", server.url, "-c", str(clients), "--num-prompts", str(requests),
             "-p", str(prompt), "-n", str(gen), "--shared-prefix", str(shared), "--seed", str(seed), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"load on {server.name}: {done.stderr}")
    return json.loads(done.stdout)


def stream(server, prompt, tokens, times):
    body = json.dumps(dict(model="m", prompt=prompt, max_tokens=tokens, temperature=0, stream=True, ignore_eos=True,
                           cache_prompt=False)).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        reader = s.makefile("rb")
        for line in reader:
            if line.startswith(b"data: ") and b"[DONE]" not in line:
                times.append(time.perf_counter())


def words_of(count, seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(count))


def p99(values):
    values = sorted(values)
    return values[min(len(values) - 1, int(0.99 * len(values)))]


def prefill_beside(server, seed, tokens):
    """p99 of the gaps (ms) of one stream: alone, and while 2,000-token prompts come in one after the other."""
    quiet, busy = [], []
    stream(server, words_of(60, seed), tokens, quiet)
    other = threading.Thread(target=lambda: [stream(server, words_of(2000, seed * 7 + i), 1, []) for i in range(2)])
    own = threading.Thread(target=stream, args=(server, words_of(60, seed + 1), tokens, busy))
    own.start()
    while len(busy) < 8:
        time.sleep(0.002)
    begin = time.perf_counter()
    other.start()
    other.join()
    end = time.perf_counter()
    own.join()
    gaps = lambda times: [1e3 * (b - a) for a, b in zip(times, times[1:])]
    during = [g for g, t in zip(gaps(busy), busy[1:]) if begin <= t <= end]
    alone = gaps(quiet)
    return dict(quiet_p50=statistics.median(alone), quiet_p99=p99(alone), during_p50=statistics.median(during or [0]),
                during_p99=p99(during or [0]), during_max=max(during or [0]), prefill_s=end - begin)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--load", required=True, help="the mlxcel program")
    ap.add_argument("--server", action="append", required=True, help="NAME=COMMAND with {port}")
    ap.add_argument("--clients", default="1,4,8,16")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--prompt", type=int, default=105)
    ap.add_argument("--gen", type=int, default=64)
    ap.add_argument("--shared", type=int, default=512, help="tokens of the shared prefix in the second half of the cells")
    ap.add_argument("--per-client", type=int, default=4, help="requests per client and cell")
    ap.add_argument("--no-prefill", action="store_true", help="leave out the prefill cell")
    ap.add_argument("--json", help="write everything to this file")
    a = ap.parse_args()
    servers = [Server(spec) for spec in a.server]
    results = {}
    try:
        for server in servers:
            run_load(a.load, server, 2, 4, 64, 8, 0, 1)
        for shared in (0, a.shared):
            for clients in [int(c) for c in a.clients.split(",")]:
                cell = results.setdefault(f"{clients} clients" + (f", {shared} shared" if shared else ""), {})
                for r in range(a.rounds):
                    for server in servers:
                        run = run_load(a.load, server, clients, clients * a.per_client, a.prompt, a.gen, shared,
                                       1000 * r + clients + 7 * shared)
                        cell.setdefault(server.name, []).append(run)
        if not a.no_prefill:
            cell = results.setdefault("prefill beside", {})
            for r in range(a.rounds):
                for server in servers:
                    cell.setdefault(server.name, []).append(prefill_beside(server, 50 + r, 160))
    finally:
        for server in servers:
            server.stop()
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)
    reference = servers[0].name
    median = lambda runs, key: statistics.median(r[key] for r in runs)
    print("| load | server | output tok/s | ratio (worst) | TTFT p50 / p99 ms | ITL p50 / p99 ms | cached |")
    print("|---|---|---|---|---|---|---|")
    for name, cell in results.items():
        if name == "prefill beside":
            continue
        for server, runs in cell.items():
            ratios = [x["output_throughput"] / y["output_throughput"] for x, y in zip(runs, cell[reference])]
            cached = median(runs, "total_cached_tokens") / max(1, median(runs, "total_input_tokens"))
            print(f"| {name} | {server} | {median(runs, 'output_throughput'):.0f} | {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f}) | {median(runs, 'median_ttft_ms'):.0f} / {median(runs, 'p99_ttft_ms'):.0f} | "
                  f"{median(runs, 'median_itl_ms'):.1f} / {median(runs, 'p99_itl_ms'):.1f} | {100 * cached:.0f} % |")
    if not a.no_prefill:
        print("\n| server | ITL alone p50 / p99 ms | ITL while 2,000-token prompts are computed p50 / p99 / max ms | p99 / p99 | seconds for two prompts |")
        print("|---|---|---|---|---|")
        for server, runs in results["prefill beside"].items():
            m = {k: median(runs, k) for k in runs[0]}
            print(f"| {server} | {m['quiet_p50']:.1f} / {m['quiet_p99']:.1f} | {m['during_p50']:.1f} / {m['during_p99']:.1f} / "
                  f"{m['during_max']:.1f} | {m['during_p99'] / m['quiet_p99']:.2f} | {m['prefill_s']:.1f} |")


if __name__ == "__main__":
    main()
