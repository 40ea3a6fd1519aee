/* Teams: splits along strides and in two dimensions, nested; numbers in them; their contexts; and what is refused. */
#include "check.h"

static void predefined(void)
{
    static const shmem_team_t world = SHMEM_TEAM_WORLD;
    CHECK_EQUAL(shmem_team_my_pe(world), me);
    CHECK_EQUAL(shmem_team_n_pes(world), pes);
    const int shared = shmem_team_n_pes(SHMEM_TEAM_SHARED);
    CHECK(shared >= 1 && shared <= pes);
    static int word;
    for (int pe = 0; pe < shared; pe++) {
        const int in_world = shmem_team_translate_pe(SHMEM_TEAM_SHARED, pe, SHMEM_TEAM_WORLD);
        CHECK(shmem_ptr(&word, in_world) != NULL);
        CHECK(shmem_team_ptr(SHMEM_TEAM_SHARED, &word, pe) == shmem_ptr(&word, in_world));
    }
    CHECK_EQUAL(shmem_team_my_pe(SHMEM_TEAM_INVALID), -1);
    CHECK_EQUAL(shmem_team_n_pes(SHMEM_TEAM_INVALID), -1);
    CHECK_EQUAL(shmem_team_translate_pe(SHMEM_TEAM_INVALID, 0, SHMEM_TEAM_WORLD), -1);
    CHECK_EQUAL(shmem_team_translate_pe(SHMEM_TEAM_WORLD, 0, SHMEM_TEAM_INVALID), -1);
    CHECK_EQUAL(shmem_team_translate_pe(SHMEM_TEAM_WORLD, pes, SHMEM_TEAM_WORLD), -1);
    CHECK(shmem_team_sync(SHMEM_TEAM_INVALID) != 0);
    shmem_team_destroy(SHMEM_TEAM_INVALID);
}

static void sum_is(shmem_team_t team, int expected)
{
    static int mine, sum;
    mine = me;
    sum = -1;
    CHECK_EQUAL(shmem_int_sum_reduce(team, &sum, &mine, 1), 0);
    CHECK_EQUAL(sum, expected);
}

static void strided(void)
{
    shmem_team_t backwards, evens, inner;
    shmem_team_config_t config = { 3 }, found = { 0 };
    CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, &config, SHMEM_TEAM_NUM_CONTEXTS, &backwards), 0);
    CHECK_EQUAL(shmem_team_my_pe(backwards), pes - 1 - me);
    CHECK_EQUAL(shmem_team_get_config(backwards, SHMEM_TEAM_NUM_CONTEXTS, &found), 0);
    CHECK_EQUAL(found.num_contexts, 3);
    CHECK_EQUAL(shmem_team_get_config(backwards, 0, NULL), 0);
    CHECK(shmem_team_get_config(SHMEM_TEAM_INVALID, 0, &found) != 0);
    CHECK_EQUAL(shmem_team_translate_pe(backwards, 0, SHMEM_TEAM_WORLD), pes - 1);
    sum_is(backwards, pes * (pes - 1) / 2);
    /* Strides count PEs of the parent. */
    const int count = (pes + 1) / 2;
    shmem_team_split_strided(backwards, 0, 2, count, NULL, 0, &evens);
    CHECK_EQUAL(evens != SHMEM_TEAM_INVALID, (pes - 1 - me) % 2 == 0);
    if (evens != SHMEM_TEAM_INVALID) {
        CHECK_EQUAL(shmem_team_my_pe(evens), (pes - 1 - me) / 2);
        CHECK_EQUAL(shmem_team_n_pes(evens), count);
        int sum = 0;
        for (int place = 0; place < count; place++) {
            sum += pes - 1 - 2 * place;
            CHECK_EQUAL(shmem_team_translate_pe(evens, place, SHMEM_TEAM_WORLD), pes - 1 - 2 * place);
        }
        sum_is(evens, sum);
        CHECK_EQUAL(shmem_team_split_strided(evens, 0, 1, 1, NULL, 0, &inner), 0);
        CHECK_EQUAL(inner != SHMEM_TEAM_INVALID, shmem_team_my_pe(evens) == 0);
        if (inner != SHMEM_TEAM_INVALID) {
            sum_is(inner, me);
            shmem_team_destroy(inner);
        }
        shmem_team_destroy(evens);
    }
    shmem_team_destroy(backwards);
}

static void grid(void)
{
    for (int width = 1; width <= pes + 1; width++) {
        shmem_team_t row, column;
        const int real = width > pes ? pes : width;
        CHECK_EQUAL(shmem_team_split_2d(SHMEM_TEAM_WORLD, width, NULL, 0, &row, NULL, 0, &column), 0);
        CHECK_EQUAL(shmem_team_my_pe(row), me % real);
        CHECK_EQUAL(shmem_team_my_pe(column), me / real);
        const int first = me / real * real, rest = pes - first < real ? pes - first : real;
        CHECK_EQUAL(shmem_team_n_pes(row), rest);
        sum_is(row, rest * first + rest * (rest - 1) / 2);
        int sum = 0;
        for (int pe = me % real; pe < pes; pe += real) {
            sum += pe;
        }
        sum_is(column, sum);
        shmem_team_destroy(row);
        shmem_team_destroy(column);
    }
}

static void refused(void)
{
    shmem_team_t team = SHMEM_TEAM_WORLD, other = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes + 1, NULL, 0, &team) != 0);
    CHECK(team == SHMEM_TEAM_INVALID);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, -1, 1, 1, NULL, 0, &team) != 0);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &team) != 0);
    CHECK(team == SHMEM_TEAM_INVALID);
    CHECK(shmem_team_split_2d(SHMEM_TEAM_INVALID, 1, NULL, 0, &team, NULL, 0, &other) != 0);
    CHECK(team == SHMEM_TEAM_INVALID && other == SHMEM_TEAM_INVALID);
}

static void contexts(void)
{
    static int target[2];
    static const shmem_ctx_t by_default = SHMEM_CTX_DEFAULT;
    shmem_team_t backwards, found;
    shmem_ctx_t ctx;
    CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, NULL, 0, &backwards), 0);
    CHECK_EQUAL(shmem_team_create_ctx(backwards, SHMEM_CTX_PRIVATE, &ctx), 0);
    CHECK_EQUAL(shmem_ctx_get_team(ctx, &found), 0);
    CHECK(found == backwards);
    CHECK_EQUAL(shmem_ctx_get_team(by_default, &found), 0);
    CHECK(found == SHMEM_TEAM_WORLD);
    CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &found) != 0);
    CHECK(found == SHMEM_TEAM_INVALID);
    /* PE numbers are those of the team. */
    const int to = (shmem_team_my_pe(backwards) + 1) % pes;
    shmem_ctx_int_p(ctx, &target[0], me, to);
    CHECK_EQUAL(shmem_ctx_int_atomic_swap(ctx, &target[1], me + 1, to), 0);
    shmem_ctx_quiet(ctx);
    shmem_ctx_fence(ctx);
    shmem_ctx_pe_quiet(ctx, &to, 1);
    shmem_barrier_all();
    CHECK_EQUAL(target[0], next_pe());
    CHECK_EQUAL(target[1], next_pe() + 1);
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, NULL, 0);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_destroy(ctx);
    shmem_ctx_destroy(SHMEM_CTX_INVALID);
    CHECK(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &ctx) != 0);
    shmem_team_destroy(backwards);
}

/* Teams come and go: their numbers are used again. */
static void many(void)
{
    for (int turn = 0; turn < 300; turn++) {
        shmem_team_t team;
        const int size = 1 + turn % pes;
        CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, size, NULL, 0, &team), 0);
        CHECK_EQUAL(team != SHMEM_TEAM_INVALID, me < size);
        if (team != SHMEM_TEAM_INVALID) {
            sum_is(team, size * (size - 1) / 2);
            shmem_team_destroy(team);
        }
    }
}

int main(void)
{
    begin();
    predefined();
    strided();
    grid();
    refused();
    contexts();
    many();
    end("teams");
    return 0;
}
