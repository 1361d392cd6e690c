"""The governor's arithmetic: what T rows cost, which drafts land, and which K pays now."""

cdef enum:
    SIZES = 65  # num_draft 0 .. 64
    FLOOR = 6   # a broken draft does not lower the limit further
    HEAVIEST = 20  # samples that a size counts for beside its neighbours
    RECENT = 32    # steps after which the cost of a plain one is measured anew

cdef double CHANGE = 2.0  # of the scale, after which the ratios may be others
cdef double PAUSE = 30.0  # seconds of calls between two measurements, which take a tenth of one

cdef double CLEAR = 1.5  # unless drafting is clearly faster
cdef double COLD = 3.0  # times as long a draft behind a pause may take
cdef double NEARLY = 0.95  # of the best rate: a size that was never measured is tried


cdef class CostCurve:
    """Seconds of a call by its size: robust running estimates and a curve through them.

    seconds(size) = scale * ratio(size), where the ratio of the size that came first is 1. The scale
    follows the machine's speed of the moment quickly and for all sizes at once, the ratios slowly:
    so a busy machine does not make one size look cheap beside another that was measured before.

    No size costs more than a larger one: sizes that contradict that share their mean. Between
    measured sizes the curve is linear, past the largest it goes on at its mean slope; while one
    size is known, that is ``prior_slope`` times the cost of size 0. Until a size has three samples
    the curve goes through it only where it is cheaper than the well known sizes let expect: else
    one stall would rule a size out for ever. ``seed`` begins with what was measured on purpose.

    Args:
        prior_slope: the assumed cost of one more, as a share of the smallest call.
        rate: the least weight of a new sample in its size's ratio.
        drift: the weight of a new sample in the scale; 0 for a curve of shares, which no machine
            stretches: each size is then known by its own calls alone.
    """

    cdef double ratios[SIZES]
    cdef int samples[SIZES]
    cdef double curve[SIZES]
    cdef int largest    # size measured, -1 before any
    cdef int reference  # the size whose ratio is 1, -1 before any
    cdef double scale, prior_slope, rate, drift
    cdef int surprises
    cdef double seeded_scale, next_seed, heard  # when seeded; of the seconds of all calls

    def __cinit__(self, double prior_slope, double rate=0.05, double drift=0.1):
        self.prior_slope, self.rate, self.drift = prior_slope, rate, drift
        self.largest = self.reference = -1

    @property
    def wants_seed(self):
        """True where it is time to measure, first or anew; not before a first call was counted.

        Anew, if since ``seed`` calls take twice or half as long, as behind a longer context or
        beside other processes, and have taken 30 seconds: their ratios may be others.
        """
        if self.reference < 0 or self.heard < self.next_seed:
            return False
        return self.next_seed == 0 or not self.seeded_scale / CHANGE < self.scale < (
            self.seeded_scale * CHANGE)

    def seed(self, dict seconds):
        """Begin anew with calls that were measured, each as good as three samples.

        So a real call of that size weighs a quarter at first; what calls took before is forgotten.

        Args:
            seconds: by size, of 0 and others; none at all leave the curve as it is.
        """
        cdef int size
        if seconds:
            if min(seconds) != 0 or max(seconds) >= SIZES:
                raise ValueError(f"sizes {sorted(seconds)}: expected 0, and others below {SIZES}")
            self.reference, self.scale = 0, max(seconds[0], 1e-9)
            self.largest = max(seconds)
            for size in range(SIZES):
                self.samples[size] = 3 if size in seconds else 0
                self.ratios[size] = max(seconds.get(size, 0), 1e-9) / self.scale
            self._draw()
        self.surprises = 0
        self.seeded_scale = self.scale
        self.next_seed = self.heard + PAUSE

    def add(self, int size, double seconds):
        """Count one call; sizes behind 64 are left out.

        Of the first three samples of a size the least counts, since first calls are slow; later
        ones are clipped at half and twice the estimate.
        """
        if size < 0:
            raise ValueError(f"size {size}: expected 0 or more")
        if size < SIZES:
            self._add(size, seconds)

    def at(self, int size):
        """The curve's seconds at a size >= 0; 0 before any sample."""
        if size < 0:
            raise ValueError(f"size {size}: expected 0 or more")
        return self._at(size)

    cdef double _at(self, int size) noexcept:
        cdef double last = self.curve[SIZES - 1]
        if size < SIZES:
            return self.curve[size]
        return last + (size - SIZES + 1) * (last - self.curve[SIZES - 2])

    cdef double _charge(self, int size) noexcept:
        """What a call is taken to have cost: where a size is new, no less than it may well be."""
        cdef double seconds = self._at(size)
        if size < SIZES and 0 < self.samples[size] < 3:
            seconds = max(seconds, min(self.scale * self.ratios[size], 2 * seconds))
        return seconds

    cdef bint is_new(self, int size) noexcept:
        return size < SIZES and self.samples[size] == 0

    cdef bint doubts(self, int size) noexcept:
        """True if a size was not measured, or once or twice and too slow beside a larger one."""
        cdef int larger
        if size >= SIZES or self.samples[size] >= 3:
            return False
        if self.samples[size] == 0:
            return True
        for larger in range(size + 1, self.largest + 1):
            if self.samples[larger] > 0 and self.ratios[size] > 1.1 * self.ratios[larger]:
                return True
        return False

    cdef void _add(self, int size, double seconds) noexcept:
        cdef double *ratio = &self.ratios[size]
        cdef int count = self.samples[size]
        cdef double expected
        seconds = max(seconds, 1e-9)
        self.heard += seconds
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
            if self.drift > 0:
                self._count_surprise(seconds / expected)
            if abs(self.surprises) >= 3:
                self.scale *= seconds / expected  # it is the machine, or a longer context
            else:
                self.scale *= 1 + self.drift * (seconds / expected - 1)
            if (size != self.reference or self.drift == 0) and abs(self.surprises) < 3:
                ratio[0] += (seconds / self.scale - ratio[0]) * max(self.rate, 1.0 / (count + 1))
        self.samples[size] = count + 1
        self.largest = max(self.largest, size)
        self._draw()

    cdef void _count_surprise(self, double factor) noexcept:
        """Calls in a row, of any size, that all took far longer (> 0) or far less than expected."""
        if factor > 1.25:
            self.surprises = max(self.surprises, 0) + 1
        elif factor < 0.8:
            self.surprises = min(self.surprises, 0) - 1
        else:
            self.surprises = 0

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
        cdef int pools = 0, size, i, known, start = 0
        cdef double slope, step, base
        while self.samples[start] == 0:
            start += 1
        known, base = start, self.ratios[start]
        slope = self.prior_slope * base / (1 + self.prior_slope * start)
        for size in range(start, self.largest + 1):
            if self.samples[size] == 0:
                continue
            mean[pools], weight[pools] = self.ratios[size], min(self.samples[size], HEAVIEST)
            if self.samples[size] < 3:
                mean[pools] = min(mean[pools], base + slope * (size - known))
            elif size > start:
                known, base = size, self.ratios[size]
                slope = max(0.0, (base - self.ratios[start]) / (size - start))
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


cdef class Acceptance:
    """How often one speculator proposes in one sequence, and how far its drafts land.

    With Q_i = P(a draft has i tokens) and A_i = P(its first i match): both are products of
    conditional probabilities by position, which forget exponentially. A position counts where it
    was reached: a fully accepted draft says nothing about the next position, which is drawn
    towards its neighbour, or towards the drafter's own confidence in such tokens where it has some.
    A after a draft that broke is kept apart from A after one that landed whole, since copying goes
    on until it ends.
    """

    cdef CostCurve drafts          # what the speculator takes by its tokens, in plain steps
    cdef double asked[SIZES]       # [i]: steps that proposed i - 1 tokens and were to propose i
    cdef double given[SIZES]       # those that did
    cdef double reached[2][SIZES]  # [broken, i]: drafts whose first i - 1 tokens matched
    cdef double matched[2][SIZES]  # those whose token i matched too
    cdef double named[SIZES]       # [i]: drafts with a confidence of token i
    cdef double sure[SIZES]        # the sum of these
    cdef int broken                # the last draft did not match to its end
    cdef int limit                 # the longest draft to try
    cdef int num_asked             # K of this step
    cdef long asked_in             # the last step that asked
    cdef bint cold                 # the step before it did not
    cdef int slow                  # drafts in a row that took far longer than known
    cdef bint probing              # it does not look worth it
    cdef double memory, idle_memory, propose_memory, prior_weight

    def __cinit__(self, CostCurve drafts not None, options, double prior):
        cdef int broken
        self.drafts = drafts
        self.memory, self.idle_memory = options.memory, options.idle_memory
        self.propose_memory, self.prior_weight = options.propose_memory, options.prior_weight
        self.limit = 4
        self.asked_in = -2
        for broken in range(2):
            self.reached[broken][1] = self.prior_weight
            self.matched[broken][1] = self.prior_weight * prior

    cdef void count_proposed(self, int num_proposed, list confidences):
        cdef int i
        cdef double confidence
        for i, confidence in enumerate(confidences[:num_proposed], 1):
            self.named[i] = self.propose_memory * self.named[i] + 1
            self.sure[i] = self.propose_memory * self.sure[i] + confidence
        for i in range(1, min(num_proposed + 1, self.num_asked) + 1):
            self.asked[i] = self.propose_memory * self.asked[i] + 1
            self.given[i] = self.propose_memory * self.given[i] + (i <= num_proposed)

    cdef void count_matched(self, int num_proposed, int num_matched) noexcept:
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
            self.limit = max(self.limit, 2 * num_proposed + 2)
        self.limit = min(self.limit, SIZES - 1)

    cdef double _accepts(self, int i, double neighbour) noexcept:
        """The probability that token i matches where those before it do."""
        cdef double likely = neighbour
        if self.named[i] > 0:
            likely = self.sure[i] / self.named[i]
        elif i == 1:  # what it was counted with at first
            return self.matched[self.broken][1] / self.reached[self.broken][1]
        return (self.prior_weight * likely + self.matched[self.broken][i]) / (
            self.prior_weight + self.reached[self.broken][i])

    cdef void expect(self, int most, double *present, double *matches) noexcept:
        """P(a draft has k tokens), and how many tokens match of one that may have k."""
        cdef double accepts = 0, lands = 1
        cdef int k
        present[0], matches[0] = 1, 0
        for k in range(1, most + 1):
            present[k] = present[k - 1] * (1 + self.given[k]) / (1 + self.asked[k])
            accepts = self._accepts(k, accepts)
            lands *= accepts
            matches[k] = matches[k - 1] + present[k] * lands

    cdef int best(self, CostCurve rows, int others, int most, double margin,
                  const double *present, const double *matches, double *gain) noexcept:
        """The K in 0 .. most that emits the most tokens a second, and its gain over plain."""
        cdef const double *drafts = self.drafts.curve
        cdef double unit = rows._at(0), plain = rows._at(others), seconds = plain, proposes = 1
        cdef double rates[SIZES]
        cdef double rate, best_rate = (1 + margin) * (others + 1) / plain
        cdef int k, best = 0
        if most > 0:
            proposes = present[1]
        for k in range(1, most + 1):
            seconds += present[k] * (rows._at(others + k) - rows._at(others + k - 1))
            rate = (others + 1 + matches[k]) / (
                seconds + unit * (proposes * drafts[k] + (1 - proposes) * drafts[0]))
            rates[k] = rate
            if rate > best_rate:
                best, best_rate = k, rate
        gain[0] = best_rate * plain / (others + 1)
        if best and gain[0] > CLEAR:
            for k in range(most, 0, -1):
                if rates[k] > NEARLY * best_rate and rows.is_new(others + k):
                    return k
        return best


cdef class AdaptivePolicy:
    """Drafts the K that emits the most tokens a second, at a bounded risk, for one sequence.

    With Q and A of the speculator that is asked, c(n) the cost of a step with n + 1 rows and B - 1
    other sequences in it, taken to be plain:

        rate(K) = (B + sum_{i<=K} Q_i A_i)
                  / (c(B - 1) + sum_{i<=K} Q_i (c(B - 1 + i) - c(B - 2 + i)) + c(0) draft(K))

    K is worth it if it beats a plain step by the margin, since costs are known only so well. While
    drafting is not clearly faster, a plain step now and then measures what it is compared with. K
    grows at most twofold a step.

    The risk is a credit, in plain tokens. Each emitted token adds the allowance; a step that drafts
    adds what it saved against plain decoding of what it emitted, or subtracts what it lost, by the
    curves and not by its own seconds, which a busy machine can stretch or shrink; what the
    speculators spend on hearing of the kept rows is subtracted too, up to half of the allowance,
    since it goes on whether drafts do or not. A draft that missed costs at least ``least_loss``,
    whatever the curves say. No draft is longer than the credit could pay if half as much of it
    matched as is expected. Where none looks worth it, a short probe goes out whenever the credit
    pays for it. So drafting that never pays loses the allowance, and what upkeep is above half of
    it, and yet it never parks for good. A drafter that proposes nothing costs a plain step, and is
    no failure.

    Args:
        rows: the cost of the target's steps by their rows but one, shared by its sequences.
        drafts: what each speculator takes by the tokens it proposed, shared likewise; in plain
            steps of one sequence, since a busy machine stretches both. Grows.
        options: a ``GovernorOptions``.
    """

    cdef readonly CostCurve rows
    cdef dict drafts
    cdef dict members  # the Acceptance of each speculator that was asked
    cdef readonly double credit
    cdef readonly int num_parked
    cdef readonly int num_probes
    cdef object options
    cdef Acceptance source  # who proposed last
    cdef double spent       # on the proposals of this step, by the curves
    cdef int others         # sequences beside this one in the last step
    cdef int since_plain    # steps since the last one without a draft
    cdef bint asking        # some speculator was asked in this step
    cdef long steps         # observed
    cdef double allowance, most_credit, margin, least_loss
    cdef int probe

    def __cinit__(self, CostCurve rows not None, dict drafts not None, options):
        self.rows, self.drafts, self.members, self.options = rows, drafts, {}, options
        self.allowance, self.credit = options.allowance, options.first_credit
        self.most_credit = options.most_credit
        self.margin, self.least_loss = options.margin, options.least_loss
        self.probe = options.probe

    def wants_draft_costs(self, str member):
        """True if what the named speculator's drafts take is not known, and what a step takes is."""
        cdef int known = self.rows.reference
        return known >= 0 and self.rows.samples[known] >= 3 and (
            self._drafts_of(member).next_seed == 0)

    def seed_draft_costs(self, str member, dict seconds):
        """Begin with drafts that were measured on purpose, by their tokens; for all policies."""
        cdef double unit = self.rows._at(0)
        self._drafts_of(member).seed({size: cost / unit for size, cost in seconds.items()})

    @property
    def plain_seconds(self):
        """What a step without a draft costs; None before one was measured."""
        return None if self.rows.doubts(self.others) else self.rows._at(self.others)

    def num_draft(self, str member, int max_draft, int others=0, double gate=0):
        """K that this speculator is to propose in the next step, 0 if it is not to be asked.

        What has passed a gate on its likelihood is taken to match at least that often, until more
        is known.
        """
        cdef Acceptance asked = self._member(member, gate)
        cdef int most = min(min(max_draft, asked.limit), SIZES - 1)
        cdef double plain = self.rows._at(others)
        cdef double token = plain / (others + 1), gain = 0, unit = self.rows._at(0)
        cdef double present[SIZES]
        cdef double matches[SIZES]
        asked.num_asked, asked.probing = 0, False
        if self.rows.doubts(others):
            return 0  # all is measured against a plain step
        if self.credit < self.least_loss:
            most = 0  # though by the curves it may cost nothing
        asked.expect(most, present, matches)
        while most > 0 and (
                self.rows._at(others + most) - plain + unit * asked.drafts.curve[most]
                > (self.credit + matches[most] / 2) * token):
            most -= 1
        asked.num_asked = asked.best(
            self.rows, others, most, self.margin, present, matches, &gain)
        if asked.num_asked > 0 and gain < CLEAR and self.since_plain >= RECENT:
            asked.num_asked = 0  # what a plain step costs now decides, so see
        elif asked.num_asked == 0:
            asked.num_asked = min(self.probe, most)
            asked.probing = asked.num_asked > 0
        if asked.num_asked > 0:
            self.asking = True
            asked.cold, asked.asked_in = asked.asked_in != self.steps - 1, self.steps
        return asked.num_asked

    def proposed(self, str member, int num_proposed, double seconds, list confidences=[]):
        """Hear what a speculator that was asked proposed, how sure it is, and how long it took."""
        cdef Acceptance source = self._member(member)
        cdef double unit = self.rows._at(0), known
        num_proposed = min(num_proposed, SIZES - 1)
        source.count_proposed(num_proposed, confidences)
        if unit > 0:
            known = source.drafts._charge(num_proposed)
            # Behind a pause caches and code are cold: that is paid for, but no draft in a row costs
            # so much. What takes far longer again and again has changed.
            source.slow = source.slow + 1 if seconds > COLD * known * unit else 0
            if source.cold and 0 < known < seconds / unit and source.slow < 3:
                self.spent += min(seconds, COLD * known * unit)
            else:
                source.drafts._add(num_proposed, seconds / unit)
                self.spent += unit * source.drafts._charge(num_proposed)
        if num_proposed > 0:
            self.source = source

    def observe(self, int num_proposed, int num_matched, double upkeep=0, int others=0):
        """Hear what a step gained; ``rows`` has heard before what it cost."""
        cdef double plain = self.rows._at(others)
        cdef double token = plain / (others + 1), saved = 0, allowed
        num_proposed = min(num_proposed, SIZES - 1)
        self.others = others
        self.since_plain = 0 if num_proposed == 0 else self.since_plain + 1
        if not self.asking:
            self.num_parked += 1
        else:
            saved = num_matched - (
                self.rows._charge(others + num_proposed) - plain + self.spent) / token
        if num_proposed > 0 and self.source is not None:
            self.source.count_matched(num_proposed, num_matched)
            self.num_probes += self.source.probing
            if num_matched == 0:
                saved = min(saved, -self.least_loss)
        allowed = self.allowance * (num_matched + 1)
        self.credit += saved + max(allowed - upkeep / token, allowed / 2)
        self.credit = min(self.credit, self.most_credit)
        self.asking = False
        self.steps += 1
        self.spent = 0

    cdef Acceptance _member(self, str name, double gate=0):
        found = self.members.get(name)
        if found is None:
            prior = max(self.options.prior, gate)
            found = self.members[name] = Acceptance(self._drafts_of(name), self.options, prior)
        return found

    cdef CostCurve _drafts_of(self, str name):
        if name not in self.drafts:
            self.drafts[name] = CostCurve(1.0, drift=0.0)  # a token at a time, until it is known
        return self.drafts[name]
