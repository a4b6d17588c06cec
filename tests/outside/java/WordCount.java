import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A Streams word count with exactly_once_v2, stopped in the middle and started again with nothing
 * but its changelog. Without a cache every word's counts go 1, 2, 3 ...: none twice, none left out.
 */
public final class WordCount {
    private static final String[] WORDS = {"log", "broker", "topic", "record", "offset", "group"};
    private static final int LINES = 200;
    private static final Duration TIMEOUT = Duration.ofSeconds(90);

    private final JsonNode plan;
    private final String input;
    private final String output;
    private final Map<String, Long> written = new TreeMap<>();
    private final Random random = new Random(14);

    private WordCount(JsonNode plan) {
        this.plan = plan;
        this.input = plan.get("prefix").asText() + "-lines";
        this.output = plan.get("prefix").asText() + "-counts";
    }

    public static void main(String[] arguments) throws Exception {
        WordCount count = new WordCount(new ObjectMapper().readTree(arguments[0]));
        count.createTopics();
        count.round("first", arguments[1] + "/first");
        System.out.println("ok counted");
        count.round("second", arguments[1] + "/second");
        System.out.println("ok restored");
        System.exit(0);
    }

    private void createTopics() throws Exception {
        short replication = (short) plan.get("replication").asInt();
        try (Admin admin = Admin.create(config())) {
            admin.createTopics(List.of(
                new NewTopic(input, 3, replication), new NewTopic(output, 2, replication))).all().get();
        }
    }

    /** Half of the lines are there before it starts; it is closed when all are counted. */
    private void round(String name, String stateDirectory) throws Exception {
        try (KafkaStreams streams = new KafkaStreams(topology(), streamsConfig(stateDirectory))) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            produce();
            streams.start();
            produce();
            checkCounts(name);
            streams.close(Duration.ofSeconds(60));
        }
    }

    private Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(input)
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    private Properties config() {
        Properties config = new Properties();
        config.put("bootstrap.servers", plan.get("bootstrap").asText());
        return config;
    }

    private Properties streamsConfig(String stateDirectory) {
        Properties config = config();
        config.put("application.id", plan.get("prefix").asText() + "-count");
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("replication.factor", plan.get("replication").asText());
        config.put("state.dir", stateDirectory);
        config.put("statestore.cache.max.bytes", "0");
        config.put("num.stream.threads", "2");
        config.put("default.key.serde", Serdes.String().getClass());
        config.put("default.value.serde", Serdes.String().getClass());
        config.put("consumer.auto.offset.reset", "earliest");
        return config;
    }

    private void produce() {
        try (KafkaProducer<String, String> producer =
            new KafkaProducer<>(config(), new StringSerializer(), new StringSerializer())) {
            for (int line = 0; line < LINES; line++) {
                List<String> words = new ArrayList<>();
                for (int word = 0; word < 5; word++) {
                    words.add(WORDS[random.nextInt(WORDS.length)]);
                }
                words.forEach(word -> written.merge(word, 1L, Long::sum));
                producer.send(new ProducerRecord<>(input, "line-" + line, String.join(" ", words)));
            }
        }
    }

    /** Reads all committed counts from the start until each word has its last one. */
    private void checkCounts(String name) {
        Properties config = config();
        config.put("isolation.level", "read_committed");
        Map<String, Long> counts = new HashMap<>();
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        try (KafkaConsumer<String, Long> consumer =
            new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> tps =
                List.of(new TopicPartition(output, 0), new TopicPartition(output, 1));
            consumer.assign(tps);
            consumer.seekToBeginning(tps);
            while (!counts.equals(written)) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError(name + ": counted " + counts + ", wrote " + written);
                }
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(300))) {
                    long next = counts.getOrDefault(record.key(), 0L) + 1;
                    if (record.value() != next) {
                        throw new AssertionError(
                            name + ": " + record.key() + " is " + record.value() + ", not " + next);
                    }
                    counts.put(record.key(), next);
                }
            }
        }
    }
}
