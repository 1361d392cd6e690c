"""The governor's arithmetic: what T rows cost, which drafts land, and which K pays now."""

cdef enum:
    SIZES = 65  # num_draft 0 .. 64
    FLOOR = 6   # a broken draft does not lower the limit further
    HEAVIEST = 20  # samples that a size counts for beside its neighbours
    RECENT = 32    # steps after which the cost of a plain one is measured anew

cdef double CLEAR = 1.5  # unless drafting is clearly faster


cdef class CostCurve:
    """Seconds of a call by its size 0 .. 64: robust running estimates and a curve through them.

    seconds(size) = scale * ratio(size), where the ratio of the size that came first is 1. The scale
    follows the machine's speed of the moment quickly and for all sizes at once, the ratios slowly:
    so a busy machine does not make one size look cheap beside another that was measured before.

    No size costs more than a larger one: sizes that contradict that share their mean. Between
    measured sizes the curve is linear, past the largest it goes on at its mean slope; while one
    size is known, that is ``prior_slope`` times the cost of size 0.

    Args:
        prior_slope: the assumed cost of one more, as a share of the smallest call.
        rate: the least weight of a new sample in its size's ratio.
        drift: the weight of a new sample in the scale.
    """

    cdef double ratios[SIZES]
    cdef int samples[SIZES]
    cdef double curve[SIZES]
    cdef int largest    # size measured, -1 before any
    cdef int reference  # the size whose ratio is 1, -1 before any
    cdef double scale, prior_slope, rate, drift

    def __cinit__(self, double prior_slope, double rate=0.05, double drift=0.1):
        self.prior_slope, self.rate, self.drift = prior_slope, rate, drift
        self.largest = self.reference = -1

    def add(self, int size, double seconds):
        """Count one call. Of the first three samples the least counts, since first calls are slow;
        later ones are clipped at half and twice the estimate."""
        if not 0 <= size < SIZES:
            raise ValueError(f"size {size}: expected 0 .. {SIZES - 1}")
        self._add(size, seconds)

    def at(self, int size):
        """The curve's seconds at a size in 0 .. 64; 0 before any sample."""
        if not 0 <= size < SIZES:
            raise ValueError(f"size {size}: expected 0 .. {SIZES - 1}")
        return self.curve[size]

    cdef bint doubts_smallest(self) noexcept:
        """True if size 0 was not measured, or once or twice and too slow beside a larger size."""
        cdef int size
        if self.samples[0] == 0 or self.samples[0] >= 3:
            return self.samples[0] == 0
        for size in range(1, self.largest + 1):
            if self.samples[size] > 0 and self.ratios[0] > 1.1 * self.ratios[size]:
                return True
        return False

    cdef void _add(self, int size, double seconds) noexcept:
        cdef double *ratio = &self.ratios[size]
        cdef int count = self.samples[size]
        cdef double expected
        seconds = max(seconds, 1e-9)
        if self.reference < 0:
            self.reference, self.scale, ratio[0] = size, seconds, 1
        elif count == 0:
            ratio[0] = seconds / self.scale
        elif count < 3 and size == self.reference:
            self._lower_scale(seconds)
        elif count < 3:
            ratio[0] = min(ratio[0], seconds / self.scale)
        else:
            expected = self.scale * ratio[0]
            seconds = min(max(seconds, expected / 2), 2 * expected)
            self.scale *= 1 + self.drift * (seconds / expected - 1)
            if size != self.reference:
                ratio[0] += (seconds / self.scale - ratio[0]) * max(self.rate, 1.0 / (count + 1))
        self.samples[size] = count + 1
        self.largest = max(self.largest, size)
        self._draw()

    cdef void _lower_scale(self, double seconds) noexcept:
        """Take a first call's slowness back; what the other sizes cost stays as it was."""
        cdef int size
        if seconds < self.scale:
            for size in range(self.largest + 1):
                if size != self.reference:
                    self.ratios[size] *= self.scale / seconds
            self.scale = seconds

    cdef void _draw(self) noexcept:
        """Isotonic regression of the ratios by their samples, then lines between them."""
        cdef double mean[SIZES]
        cdef double weight[SIZES]
        cdef int first[SIZES]  # the smallest size of a pool
        cdef int last[SIZES]
        cdef int pools = 0, size, i
        cdef double slope, step
        for size in range(self.largest + 1):
            if self.samples[size] == 0:
                continue
            mean[pools], weight[pools] = self.ratios[size], min(self.samples[size], HEAVIEST)
            first[pools] = last[pools] = size
            while pools > 0 and mean[pools - 1] >= mean[pools]:
                mean[pools - 1] = (mean[pools - 1] * weight[pools - 1]
                                   + mean[pools] * weight[pools]) / (
                                       weight[pools - 1] + weight[pools])
                weight[pools - 1] += weight[pools]
                last[pools - 1] = last[pools]
                pools -= 1
            pools += 1
        slope = self.prior_slope * mean[0] / (1 + self.prior_slope * first[0])
        if pools > 1:
            slope = (mean[pools - 1] - mean[0]) / (last[pools - 1] - first[0])
        step = min(slope, mean[0] / (first[0] + 1))
        for i in range(first[0]):
            self.curve[i] = self.scale * (mean[0] - step * (first[0] - i))
        for size in range(pools):
            for i in range(first[size], last[size] + 1):
                self.curve[i] = self.scale * mean[size]
            if size + 1 < pools:
                step = (mean[size + 1] - mean[size]) / (first[size + 1] - last[size])
                for i in range(last[size] + 1, first[size + 1]):
                    self.curve[i] = self.scale * (mean[size] + step * (i - last[size]))
        for i in range(self.largest + 1, SIZES):
            self.curve[i] = self.curve[i - 1] + self.scale * slope


cdef class AdaptivePolicy:
    """Drafts the K that emits the most tokens a second, at a bounded risk, for one sequence.

    With Q_i = P(a draft has i tokens), A_i = P(its first i match) and c(k) the cost of a step with
    k draft tokens:

        rate(K) = (1 + sum_{i<=K} Q_i A_i) / (c(0) + sum_{i<=K} Q_i (c(i) - c(i - 1)) + draft(K))

    Q and A are products of conditional probabilities by position, which forget exponentially. A
    position counts where it was reached: a fully accepted draft says nothing about the next
    position, which is drawn towards its neighbour. K is worth it if it beats a plain step by the
    margin, since costs are known only so well. A after a draft that broke is kept apart from A
    after one that landed whole, since copying goes on until it ends. K grows at most twofold a step.

    The risk is a credit, in plain steps. Each emitted token adds the allowance; a step that drafts
    adds what it saved against plain decoding of what it emitted, or subtracts what it lost, by the
    curves and not by its own seconds, which a busy machine can stretch or shrink. A draft that
    missed costs at least ``least_loss``, whatever the curves say. No
    draft is longer than the credit could pay if all of it missed. Where none looks worth it, a
    short probe goes out whenever the credit pays for it. So drafting that never pays loses the
    allowance and no more, and yet it never parks for good. A drafter that proposes nothing costs
    a plain step, and is no failure.

    Args:
        rows: the cost of the target's steps by num_draft, shared by its sequences.
        drafts: the speculator's cost by the tokens it proposed, shared likewise.
        options: a ``GovernorOptions``.
    """

    cdef readonly CostCurve rows
    cdef readonly CostCurve drafts
    cdef readonly double credit
    cdef readonly int num_parked
    cdef readonly int num_probes
    cdef readonly list steps_by_num_draft
    cdef double asked[SIZES]       # [i]: steps that proposed i - 1 tokens and were to propose i
    cdef double given[SIZES]       # those that did
    cdef double reached[2][SIZES]  # [broken, i]: drafts whose first i - 1 tokens matched
    cdef double matched[2][SIZES]  # those whose token i matched too
    cdef int broken                # the last draft did not match to its end
    cdef int limit                 # the longest draft to try
    cdef int since_plain           # steps since the last one without a draft
    cdef int num_asked             # K of this step
    cdef bint probing
    cdef double memory, idle_memory, propose_memory, prior, prior_weight, allowance, most_credit
    cdef double margin, least_loss
    cdef int probe

    def __cinit__(self, CostCurve rows not None, CostCurve drafts not None, options):
        self.rows, self.drafts = rows, drafts
        self.memory, self.idle_memory = options.memory, options.idle_memory
        self.propose_memory = options.propose_memory
        self.prior, self.prior_weight = options.prior, options.prior_weight
        self.allowance, self.credit = options.allowance, options.first_credit
        self.most_credit = options.most_credit
        self.margin, self.least_loss = options.margin, options.least_loss
        self.probe = options.probe
        self.limit = 4
        self.steps_by_num_draft = [0] * SIZES
        for broken in range(2):
            self.reached[broken][1] = self.prior_weight
            self.matched[broken][1] = self.prior_weight * self.prior

    @property
    def plain_seconds(self):
        """What a step without a draft costs; None before one was measured."""
        return self.rows.curve[0] if self.rows.samples[0] > 0 else None

    def num_draft(self, int max_draft):
        """K for the next step, 0 for a plain one."""
        cdef int most = min(max_draft, self.limit)
        cdef double afford = self.rows.curve[0] * (1 + self.credit)
        self.num_asked, self.probing = 0, False
        if self.rows.doubts_smallest():
            return 0  # all is measured against a plain step
        while most > 0 and self.rows.curve[most] + self.drafts.curve[most] > afford:
            most -= 1
        self.num_asked = self._best(most)
        if self.num_asked == 0:
            self.num_asked = min(self.probe, most)
            self.probing = self.num_asked > 0
        return self.num_asked

    def observe(self, int num_proposed, int num_matched, double draft_seconds,
                double verify_seconds, double other_seconds):
        """Hear what the step cost and gained; without a draft it was a plain step."""
        cdef double seconds, gained
        num_proposed = min(num_proposed, SIZES - 1)
        self.rows._add(num_proposed, verify_seconds + other_seconds)
        self.steps_by_num_draft[num_proposed] += 1
        self.since_plain = 0 if num_proposed == 0 else self.since_plain + 1
        if self.num_asked == 0:
            self.num_parked += 1
        else:
            self.drafts._add(num_proposed, draft_seconds)
            self._count_proposed(num_proposed)
            if num_proposed > 0:
                self._count_matched(num_proposed, num_matched)
                self.num_probes += self.probing
            seconds = self.rows.curve[num_proposed] + self.drafts.curve[num_proposed]
            gained = num_matched + 1 - seconds / self.rows.curve[0]
            if num_proposed > 0 and num_matched == 0:
                gained = min(gained, -self.least_loss)
            self.credit += gained
        self.credit += self.allowance * (num_matched + 1)
        self.credit = min(self.credit, self.most_credit)
        self.num_asked = 0

    cdef int _best(self, int most) noexcept:
        cdef const double *rows = self.rows.curve
        cdef const double *drafts = self.drafts.curve
        cdef const double *reached = self.reached[self.broken]
        cdef const double *matched = self.matched[self.broken]
        cdef double accepts = matched[1] / reached[1]
        cdef double proposes = (1 + self.given[1]) / (1 + self.asked[1])
        cdef double present = proposes, lands = accepts, tokens = 1, seconds = rows[0]
        cdef double rate, best_rate = (1 + self.margin) / rows[0]
        cdef int k, best = 0
        for k in range(1, most + 1):
            if k > 1:
                present *= (1 + self.given[k]) / (1 + self.asked[k])
                accepts = (self.prior_weight * accepts + matched[k]) / (
                    self.prior_weight + reached[k])
                lands *= accepts
            tokens += present * lands
            seconds += present * (rows[k] - rows[k - 1])
            rate = tokens / (seconds + proposes * drafts[k] + (1 - proposes) * drafts[0])
            if rate > best_rate:
                best, best_rate = k, rate
        if best_rate * rows[0] < CLEAR and self.since_plain >= RECENT:
            return 0  # what a plain step costs now decides, so see
        return best

    cdef void _count_proposed(self, int num_proposed) noexcept:
        cdef int i
        for i in range(1, min(num_proposed + 1, self.num_asked) + 1):
            self.asked[i] = self.propose_memory * self.asked[i] + 1
            self.given[i] = self.propose_memory * self.given[i] + (i <= num_proposed)

    cdef void _count_matched(self, int num_proposed, int num_matched) noexcept:
        cdef double *reached = self.reached[self.broken]
        cdef double *matched = self.matched[self.broken]
        cdef int num_reached = min(num_matched + 1, num_proposed)
        cdef int i
        for i in range(1, num_reached + 1):
            reached[i] = self.memory * reached[i] + 1
            matched[i] = self.memory * matched[i] + (i <= num_matched)
        for i in range(num_reached + 1, SIZES):
            reached[i] *= self.idle_memory
            matched[i] *= self.idle_memory
        self.broken = num_matched < num_proposed
        if self.broken:
            self.limit = max(min(self.limit, FLOOR), max(3 * self.limit // 4, 2 * num_matched + 2))
        else:
            self.limit = min(max(self.limit, 2 * num_proposed + 2), SIZES - 1)
